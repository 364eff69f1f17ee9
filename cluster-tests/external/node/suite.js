// What the two suites under Node share: one line per test, a deadline for each, and clients that are closed whatever happens.
'use strict'

const fs = require('node:fs')
const path = require('node:path')
const mqtt = require('mqtt')

const SECS = 20
const env = process.env
const ca = fs.readFileSync(path.join(env.EXT_CERTS, 'ca.crt'))
const url = {
  mqtt: `mqtt://127.0.0.1:${env.EXT_TCP}`,
  mqtts: `mqtts://localhost:${env.EXT_TLS}`,
  ws: `ws://127.0.0.1:${env.EXT_WS}/mqtt`,
  wss: `wss://localhost:${env.EXT_WSS}/mqtt`,
}
// The root is what MQTT.js asks for when a URL has no path.
const rootUrl = `ws://127.0.0.1:${env.EXT_WS}`

const opened = []

// A connected client whose messages wait in a list: `await client.next()` takes them in order.
async function open(address, version, options = {}) {
  const client = mqtt.connect(address, {
    protocolVersion: version,
    protocolId: version === 3 ? 'MQIsdp' : 'MQTT',
    ca,
    reconnectPeriod: 0,
    ...options,
  })
  opened.push(client)
  const waiting = []
  const asking = []
  client.on('message', (topic, payload, packet) => {
    const message = { topic, payload, text: payload.toString(), packet }
    if (asking.length) asking.shift()(message)
    else waiting.push(message)
  })
  client.on('error', () => {})
  client.next = () => (waiting.length ? Promise.resolve(waiting.shift()) : new Promise((ok) => asking.push(ok)))
  client.waiting = waiting
  client.connack = await once(client, 'connect')
  return client
}

// The first argument of the event; a failed connection rejects.
function once(client, event) {
  return new Promise((ok, failed) => {
    client.once(event, ok)
    client.once('error', failed)
  })
}

function equal(got, expected) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(expected)]
  if (a !== b) throw new Error(`expected ${b}, got ${a}`)
}

async function closeAll() {
  for (const client of opened.splice(0)) client.end(true)
}

async function check(suite, name, test, secs = SECS) {
  let timer
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Error(`not done after ${secs} s`)), secs * 1000)
  })
  try {
    await Promise.race([test(`${suite}/${name}`), late])
    console.log(`test external::${suite}::${name} ... ok`)
  } catch (error) {
    const at = (error.stack || '').split('\n').find((line) => /\w+\.js:\d+/.test(line) && !line.includes('node_modules')) || ''
    console.log(`test external::${suite}::${name} ... FAILED: ${String(error.message).split('\n')[0]} ${at.trim()}`)
  } finally {
    clearTimeout(timer)
    await closeAll()
  }
}

function skip(suite, name, why) {
  console.log(`test external::${suite}::${name} ... skipped: ${why}`)
}

module.exports = { mqtt, env, url, rootUrl, open, once, equal, check, skip }
