// MQTT.js under Node as a client of the broker: MQTT 3.1, 3.1.1 and 5.0 over mqtt, mqtts, ws and wss.
// `run` starts the broker and sets EXT_*.
'use strict'

const crypto = require('node:crypto')
const http = require('node:http')
const { env, url, rootUrl, open, once, equal, check, skip } = require('./suite.js')

const SUITE = 'mqttjs'
const mosquitto = env.EXT_KIND === 'mosquitto'
const range = (n) => Array.from({ length: n }, (_, i) => String(i))
const take = async (client, n) => {
  const got = []
  while (got.length < n) got.push(await client.next())
  return got
}

// --- the tests: each gets the address, the protocol version and a topic of its own --------------------------------------

async function deliversEveryQosInOrder(address, version, base) {
  const sub = await open(address, version)
  const pub = await open(address, version)
  await sub.subscribeAsync(`${base}/#`, { qos: 2 })
  // MQTT.js does not obey the broker's Receive Maximum, and before 5.0 there is none to obey.
  const window = version === 5 || mosquitto ? 20 : 100
  for (const qos of [0, 1, 2]) {
    for (let from = 0; from < 100; from += window) {
      await Promise.all(range(100).slice(from, from + window).map((i) => pub.publishAsync(`${base}/${qos}`, i, { qos })))
    }
    const got = await take(sub, 100)
    equal(got.map((m) => m.text), range(100))
    equal([...new Set(got.map((m) => m.packet.qos))], [qos])
  }
  equal(sub.waiting.length, 0)
}

async function keepsRetainedMessages(address, version, base) {
  const pub = await open(address, version)
  for (const name of ['a', 'b']) await pub.publishAsync(`${base}/${name}`, name, { qos: 1, retain: true })
  await pub.publishAsync(`${base}/b`, '', { qos: 1, retain: true })
  const sub = await open(address, version)
  await sub.subscribeAsync(`${base}/+`, { qos: 1 })
  const first = await sub.next()
  equal([first.topic, first.text, first.packet.retain], [`${base}/a`, 'a', true])
  await pub.publishAsync(`${base}/marker`, 'm', { qos: 1 })
  equal((await sub.next()).topic, `${base}/marker`)
  await pub.publishAsync(`${base}/a`, '', { qos: 1, retain: true })
}

// The connection is cut under the client, which reconnects by itself with its session; nothing is lost or doubled.
async function reconnectsWithItsSession(address, version, base) {
  const clientId = base.replaceAll('/', '')
  const more = version === 5 ? { properties: { sessionExpiryInterval: 600 } } : {}
  const sub = await open(address, version, { clientId, clean: false, reconnectPeriod: 300, ...more })
  equal(sub.connack.sessionPresent, false)
  await sub.subscribeAsync(base, { qos: 1 })
  const pub = await open(address, version)
  for (const round of ['a', 'b', 'c']) {
    await sub.publishAsync(`${base}/sync`, '', { qos: 1 }) // the acknowledgements before it are with the broker
    const back = once(sub, 'connect')
    const gone = once(sub, 'close')
    sub.stream.destroy()
    await gone
    for (const i of range(20)) await pub.publishAsync(base, round + i, { qos: 1 })
    const connack = await back
    if (version !== 3) equal(connack.sessionPresent, true)
    equal((await take(sub, 20)).map((m) => m.text), range(20).map((i) => round + i))
  }
  await sub.endAsync()
  await open(address, version, { clientId, clean: true })
}

async function sendsTheWill(address, version, base) {
  const watcher = await open(address, version)
  await watcher.subscribeAsync(`${base}/#`, { qos: 1 })
  const will = { topic: `${base}/will`, payload: Buffer.from('gone'), qos: 1, retain: false }
  const polite = await open(address, version, { will: { ...will, topic: `${base}/never` } })
  await polite.endAsync()
  const doomed = await open(address, version, { will })
  doomed.stream.destroy()
  const got = await watcher.next()
  equal([got.topic, got.text, got.packet.qos], [`${base}/will`, 'gone', 1])
}

async function carriesLargePayloads(address, version, base) {
  const one = await open(address, version)
  await one.subscribeAsync(base, { qos: 1 })
  for (const size of [0, 125, 126, 4096, 65535, 65536, 1_000_000]) {
    const payload = crypto.randomBytes(size)
    await one.publishAsync(base, payload, { qos: 1 })
    if (!(await one.next()).payload.equals(payload)) throw new Error(`${size} bytes came back changed`)
  }
}

async function pings(address, version, base) {
  const one = await open(address, version, { keepalive: 1 })
  for (let n = 0; n < 3; n += 1) await new Promise((ok) => one.on('packetreceive', (p) => p.cmd === 'pingresp' && ok()))
  await one.subscribeAsync(base)
  await one.publishAsync(base, 'alive')
  equal((await one.next()).text, 'alive')
}

// --- MQTT 5.0 only ---------------------------------------------------------------------------------------------------------

async function forwardsProperties(address, base) {
  const one = await open(address, 5)
  await one.subscribeAsync(base, { qos: 1, properties: { subscriptionIdentifier: 7 } })
  const properties = {
    payloadFormatIndicator: true,
    messageExpiryInterval: 500,
    contentType: 'application/json',
    responseTopic: `${base}/answers`,
    correlationData: Buffer.from([0, 1, 255]),
    userProperties: { k: ['1', '2'], other: 'x' },
  }
  await one.publishAsync(base, '{}', { qos: 1, properties })
  const got = (await one.next()).packet.properties
  equal([got.contentType, got.responseTopic, got.payloadFormatIndicator], ['application/json', `${base}/answers`, true])
  equal([...got.correlationData], [0, 1, 255])
  equal({ ...got.userProperties }, properties.userProperties)
  equal([got.subscriptionIdentifier].flat(), [7])
}

async function usesTopicAliases(address, base) {
  const one = await open(address, 5, { properties: { topicAliasMaximum: 10 }, autoUseTopicAlias: true, autoAssignTopicAlias: true })
  if (!(one.connack.properties?.topicAliasMaximum > 0)) throw new Error('the broker takes no topic aliases')
  await one.subscribeAsync(`${base}/#`, { qos: 1 })
  for (const i of range(30)) await one.publishAsync(`${base}/${i % 3}`, i, { qos: 1 })
  const got = await take(one, 30)
  equal(got.map((m) => m.text), range(30))
  equal(got.map((m) => m.topic), range(30).map((i) => `${base}/${i % 3}`))
}

async function isToldOfATakeover(address, base) {
  const clientId = base.replaceAll('/', '')
  const first = await open(address, 5, { clientId })
  const told = once(first, 'disconnect')
  await open(address, 5, { clientId })
  equal((await told).reasonCode, 0x8e)
}

async function answersRequests(address, base) {
  const server = await open(address, 5)
  await server.subscribeAsync(`${base}/ask`, { qos: 1 })
  const client = await open(address, 5)
  await client.subscribeAsync(`${base}/answer`, { qos: 1 })
  await client.publishAsync(`${base}/ask`, '21', {
    qos: 1,
    properties: { responseTopic: `${base}/answer`, correlationData: Buffer.from('id') },
  })
  const { text, packet } = await server.next()
  const { responseTopic, correlationData } = packet.properties
  await server.publishAsync(responseTopic, String(text * 2), { qos: 1, properties: { correlationData } })
  const answer = await client.next()
  equal([answer.text, answer.packet.properties.correlationData.toString()], ['42', 'id'])
}

// --- the WebSocket address ------------------------------------------------------------------------------------------------

async function connectsAtTheRoot(base) {
  const one = await open(rootUrl, 5)
  await one.subscribeAsync(base)
  await one.publishAsync(base, 'at the root')
  equal((await one.next()).text, 'at the root')
}

// MQTT.js over a WebSocket that sends each packet in frames of one byte, and several packets in one frame.
async function joinsAndSplitsFrames(base) {
  const WebSocket = require('ws')
  const packet = require('mqtt-packet')
  const socket = new WebSocket(url.ws, ['mqtt'])
  await new Promise((ok, failed) => socket.on('open', ok).on('error', failed))
  equal(socket.protocol, 'mqtt')
  const parser = packet.parser({ protocolVersion: 4 })
  socket.on('message', (data) => parser.parse(data))
  const next = (cmd) => new Promise((ok) => parser.on('packet', (p) => p.cmd === cmd && ok(p)))
  const connack = next('connack')
  const connect = packet.generate({ cmd: 'connect', protocolId: 'MQTT', protocolVersion: 4, clientId: '', clean: true, keepalive: 30 })
  for (const byte of connect) socket.send(Buffer.from([byte]))
  equal((await connack).returnCode, 0)
  const publish = next('publish')
  socket.send(Buffer.concat([
    packet.generate({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: base, qos: 0 }] }),
    packet.generate({ cmd: 'publish', topic: base, payload: 'together', qos: 0 }),
    packet.generate({ cmd: 'pingreq' }),
  ]))
  equal((await publish).payload.toString(), 'together')
  socket.terminate()
}

function answerTo(port, path, headers = {}) {
  return new Promise((ok, failed) => {
    const request = http.get({ host: '127.0.0.1', port, path, headers, agent: false }, (response) => {
      let body = ''
      response.on('data', (part) => (body += part))
      response.on('end', () => ok({ status: response.statusCode, body }))
    })
    request.on('error', failed)
    request.on('upgrade', (response, socket) => {
      socket.destroy()
      ok({ status: response.statusCode, body: '' })
    })
  })
}

const UPGRADE = {
  Connection: 'Upgrade',
  Upgrade: 'websocket',
  'Sec-WebSocket-Version': '13',
  'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
}

async function namesTheRightPath() {
  const answer = await answerTo(env.EXT_WS, '/wrong', { ...UPGRADE, 'Sec-WebSocket-Protocol': 'mqtt' })
  equal(answer.status, 404)
  if (!answer.body.includes('/mqtt')) throw new Error(`the answer does not name the path: ${answer.body}`)
}

async function refusesForeignSubprotocols() {
  equal((await answerTo(env.EXT_WS, '/mqtt', { ...UPGRADE, 'Sec-WebSocket-Protocol': 'chat' })).status, 400)
}

async function answersHttpOnTheMqttPort() {
  const answer = await answerTo(env.EXT_TCP, '/mqtt', UPGRADE)
  equal(answer.status, 400)
  if (!answer.body.includes('ws://')) throw new Error(`the answer does not name the address: ${answer.body}`)
}

const EVERYWHERE = { deliversEveryQosInOrder, keepsRetainedMessages, reconnectsWithItsSession, sendsTheWill, carriesLargePayloads }
const ONLY_V5 = { forwardsProperties, usesTopicAliases, isToldOfATakeover, answersRequests }
// What mosquitto 2.0 answers otherwise, or cannot do.
const ONLY_HOLDFAST = { connectsAtTheRoot, namesTheRightPath, refusesForeignSubprotocols, answersHttpOnTheMqttPort }

async function main() {
  for (const [name, test] of Object.entries(EVERYWHERE)) {
    for (const version of [3, 4, 5]) {
      for (const [scheme, address] of Object.entries(url)) {
        const full = `v${version}_${scheme}_${name}`
        if (mosquitto && name === 'carriesLargePayloads' && scheme.startsWith('ws')) {
          skip(SUITE, full, 'mosquitto 2.0 loses WebSocket messages above 130 KB')
        } else {
          await check(SUITE, full, (base) => test(address, version, base))
        }
      }
    }
  }
  for (const [name, test] of Object.entries(ONLY_V5)) {
    for (const scheme of ['mqtt', 'ws']) {
      if (mosquitto && name === 'isToldOfATakeover') skip(SUITE, `v5_${scheme}_${name}`, 'mosquitto 2.0 sends no DISCONNECT')
      else await check(SUITE, `v5_${scheme}_${name}`, (base) => test(url[scheme], base))
    }
  }
  for (const scheme of ['mqtt', 'wss']) await check(SUITE, `${scheme}_pings`, (base) => pings(url[scheme], 4, base))
  await check(SUITE, 'joinsAndSplitsFrames', joinsAndSplitsFrames)
  for (const [name, test] of Object.entries(ONLY_HOLDFAST)) {
    if (mosquitto) skip(SUITE, name, 'mosquitto answers otherwise')
    else await check(SUITE, name, test)
  }
  console.log('suite done')
  process.exit(0)
}

main().catch((error) => {
  console.log(error)
  process.exit(1)
})
