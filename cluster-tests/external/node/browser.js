// MQTT.js in headless Chromium as a client of the broker, over ws and wss: a page that subscribes, publishes by a click and
// shows what comes back. playwright-core drives Debian's Chromium; a server in this process hands out the page.
// `run` starts the broker and sets EXT_*.
'use strict'

const fs = require('node:fs')
const http = require('node:http')
const path = require('node:path')
const { chromium } = require('playwright-core')
const { env, url, rootUrl, open, equal, check, skip } = require('./suite.js')

const SUITE = 'browser'
const SECS = 20
const FILES = {
  '/': ['text/html', path.join(__dirname, 'page.html')],
  '/mqtt.min.js': ['text/javascript', path.join(__dirname, 'node_modules/mqtt/dist/mqtt.min.js')],
}
const FLAGS = [
  '--no-sandbox', // Chromium refuses to run as root with it
  '--disable-gpu',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--ignore-certificate-errors', // the CA of the test is in no store of Chromium's
]

function serve() {
  const server = http.createServer((request, response) => {
    const file = FILES[new URL(request.url, 'http://page').pathname]
    if (!file) return response.writeHead(404).end()
    response.writeHead(200, { 'Content-Type': file[0] }).end(fs.readFileSync(file[1]))
  })
  return new Promise((ok) => server.listen(0, '127.0.0.1', () => ok(server)))
}

let browser
let origin
const contexts = []

async function visit(address, version, topic, more = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true })
  contexts.push(context)
  const page = await context.newPage()
  page.setDefaultTimeout(SECS * 1000)
  await page.goto(`${origin}/?${new URLSearchParams({ url: address, version, topic, ...more })}`)
  return page
}

const shows = (page, id, text) =>
  page.waitForFunction(([i, t]) => document.getElementById(i).textContent.includes(t), [id, text])

const lines = (page) => page.locator('#messages li').allTextContents()

async function publish(page, text) {
  await page.fill('#text', text)
  await page.click('#publish')
}

// --- the tests -------------------------------------------------------------------------------------------------------------

async function showsWhatItPublishes(address, version, base) {
  const page = await visit(address, version, base)
  await shows(page, 'status', 'subscribed')
  await publish(page, 'Grüße ☕ from the page')
  await shows(page, 'messages', `${base}/said q1: Grüße ☕ from the page`)
  for (const n of ['one', 'two', 'three']) await publish(page, n)
  await shows(page, 'messages', 'three')
  equal((await lines(page)).map((line) => line.split(': ')[1]), ['Grüße ☕ from the page', 'one', 'two', 'three'])
}

// A client on TCP and the page see each other's messages; a retained one is there after a reload.
async function speaksWithATcpClient(address, version, base) {
  const tcp = await open(url.mqtt, 5)
  await tcp.subscribeAsync(`${base}/said`, { qos: 1 })
  await tcp.publishAsync(`${base}/kept`, 'from tcp', { qos: 1, retain: true })
  const page = await visit(address, version, base)
  await shows(page, 'messages', `${base}/kept q1 retained: from tcp`)
  await publish(page, 'hello tcp')
  equal((await tcp.next()).text, 'hello tcp')
  await page.reload()
  await shows(page, 'messages', `${base}/kept q1 retained: from tcp`)
  await tcp.publishAsync(`${base}/kept`, '', { qos: 1, retain: true })
}

// The connection of the page is cut; it comes back by itself with its session and misses nothing.
async function reconnectsWithItsSession(address, version, base) {
  const page = await visit(address, version, base, { id: base.replaceAll('/', ''), clean: 'false' })
  await shows(page, 'status', 'subscribed')
  const tcp = await open(url.mqtt, 5)
  await page.evaluate(() => window.cut())
  for (let n = 0; n < 20; n += 1) await tcp.publishAsync(`${base}/n`, `message ${n}.`, { qos: 1 })
  await shows(page, 'status', 'resumed')
  await shows(page, 'messages', 'message 19.')
  const got = (await lines(page)).filter((line) => line.startsWith(`${base}/n `)).map((line) => line.split(': ')[1])
  equal(got, Array.from({ length: 20 }, (_, n) => `message ${n}.`))
}

async function leavesItsWillWhenClosed(address, version, base) {
  const tcp = await open(url.mqtt, 5)
  await tcp.subscribeAsync(`${base}/will`, { qos: 1 })
  const page = await visit(address, version, base, version === 5 ? { id: base.replaceAll('/', '') } : {})
  await shows(page, 'status', 'subscribed')
  await page.context().close()
  equal((await tcp.next()).text, 'the page was closed')
}

async function connectsAtTheRoot(base) {
  const page = await visit(rootUrl, 5, base)
  await shows(page, 'status', 'subscribed')
}

async function main() {
  const server = await serve()
  origin = `http://127.0.0.1:${server.address().port}`
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', headless: true, args: FLAGS, timeout: 60000 })
  const tests = { showsWhatItPublishes, speaksWithATcpClient, reconnectsWithItsSession, leavesItsWillWhenClosed }
  for (const [name, test] of Object.entries(tests)) {
    for (const scheme of ['ws', 'wss']) {
      for (const version of [4, 5]) {
        await check(SUITE, `v${version}_${scheme}_${name}`, (base) => test(url[scheme], version, base))
        for (const context of contexts.splice(0)) await context.close()
      }
    }
  }
  if (env.EXT_KIND === 'mosquitto') skip(SUITE, 'connectsAtTheRoot', 'of no interest with mosquitto')
  else await check(SUITE, 'connectsAtTheRoot', connectsAtTheRoot)
  await browser.close()
  console.log('suite done')
  process.exit(0)
}

main().catch((error) => {
  console.log(error)
  process.exit(1)
})
