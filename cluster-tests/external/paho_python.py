"""Paho Python as a client of the broker: MQTT 3.1, 3.1.1 and 5.0 over TCP, TLS, WebSocket and WSS.

`run` starts the broker and sets EXT_*. Every wait has a deadline; nothing sleeps to be right.
"""

import os
import queue
import socket
import ssl
import sys
import threading
import time
import traceback

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

SECS = 15
CA = os.path.join(os.environ["EXT_CERTS"], "ca.crt")
PORTS = {t: int(os.environ["EXT_" + t.upper()]) for t in ("tcp", "tls", "ws", "wss", "mtls")}
VERSIONS = {"v31": mqtt.MQTTv31, "v311": mqtt.MQTTv311, "v5": mqtt.MQTTv5}
TRANSPORTS = ("tcp", "tls", "ws", "wss")


class Peer:
    """A client with queues for what happens to it."""

    def __init__(self, version, transport, client_id="", clean=True, expiry=0, will=None):
        self.version, self.transport, self.clean, self.expiry = VERSIONS[version], transport, clean, expiry
        self.messages, self.acked, self.connected, self.left = (queue.Queue() for _ in range(4))
        kind = "websockets" if transport in ("ws", "wss") else "tcp"
        v5 = self.version == mqtt.MQTTv5
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=None if v5 else clean,
            protocol=self.version,
            transport=kind,
            reconnect_on_failure=False,
        )
        if kind == "websockets":
            self.client.ws_set_options(path="/mqtt")
        if transport in ("tls", "wss", "mtls"):
            self.client.tls_set(ca_certs=CA, tls_version=ssl.PROTOCOL_TLS_CLIENT)
        if will:
            self.client.will_set(*will)
        c = self.client
        c.on_connect = lambda _c, _u, flags, reason, props: self.connected.put((flags, reason, props))
        c.on_disconnect = lambda _c, _u, _flags, reason, props: self.left.put(reason)
        c.on_message = lambda _c, _u, message: self.messages.put(message)
        c.on_publish = lambda _c, _u, mid, reason, _props: self.acked.put((mid, reason))
        c.on_subscribe = lambda _c, _u, mid, codes, _props: self.acked.put((mid, codes))
        c.on_unsubscribe = lambda _c, _u, mid, codes, _props: self.acked.put((mid, codes))

    def connect(self, keepalive=30):
        """Connects; returns (session present, reason, properties)."""
        more = {}
        if self.version == mqtt.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = self.expiry
            more = {"clean_start": self.clean, "properties": properties}
        self.client.connect("localhost" if self.transport in ("tls", "wss", "mtls") else "127.0.0.1",
                            PORTS[self.transport], keepalive=keepalive, **more)
        self.client.loop_start()
        flags, reason, properties = self.connected.get(timeout=SECS)
        if reason.is_failure:
            raise AssertionError(f"CONNACK says {reason}")
        return flags.session_present, reason, properties

    def _await(self, mid):
        deadline = time.monotonic() + SECS
        aside = []
        try:
            while True:
                got = self.acked.get(timeout=max(0.01, deadline - time.monotonic()))
                if got[0] == mid:
                    return got[1]
                aside.append(got)
        finally:
            for one in aside:
                self.acked.put(one)

    def subscribe(self, topic, qos=0, **more):
        result, mid = self.client.subscribe(topic, qos, **more)
        equal(result, mqtt.MQTT_ERR_SUCCESS)
        return self._await(mid)

    def unsubscribe(self, topic):
        _, mid = self.client.unsubscribe(topic)
        return self._await(mid)

    def publish(self, topic, payload, qos=0, retain=False, properties=None):
        """Publishes and waits for the end of the acknowledgement flow."""
        info = self.client.publish(topic, payload, qos, retain, properties)
        info.wait_for_publish(SECS)
        if not info.is_published():
            raise AssertionError(f"no acknowledgement of a QoS {qos} message within {SECS} s")

    def next(self):
        return self.messages.get(timeout=SECS)

    def next_payloads(self, count):
        return [self.next().payload.decode() for _ in range(count)]

    def cut(self):
        """Ends the connection without DISCONNECT."""
        raw = self.client.socket()
        raw = getattr(raw, "_socket", raw)  # under WebSocket framing
        raw.shutdown(socket.SHUT_RDWR)
        self.left.get(timeout=SECS)
        self.client.loop_stop()

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"expected {expected!r}, got {got!r}")


opened = []


def peer(*args, **more):
    """A peer that is closed when the test ends, however it ends."""
    opened.append(Peer(*args, **more))
    return opened[-1]


# --- the tests: each gets a version, a transport and a topic prefix of its own -----------------------------------------


def delivers_every_qos_in_order(version, transport, base):
    sub, pub = peer(version, transport), peer(version, transport)
    sub.connect()
    pub.connect()
    sub.subscribe(base + "/#", 2)
    for qos in range(3):
        infos = [pub.client.publish(f"{base}/q{qos}", f"{i}", qos) for i in range(100)]
        for info in infos:
            info.wait_for_publish(SECS)
        got = [sub.next() for _ in range(100)]
        equal([m.payload.decode() for m in got], [str(i) for i in range(100)])
        equal({m.qos for m in got}, {qos})
        equal({m.topic for m in got}, {f"{base}/q{qos}"})
    equal(sub.messages.qsize(), 0)


def keeps_retained_messages(version, transport, base):
    pub = peer(version, transport)
    pub.connect()
    for name in "abc":
        pub.publish(f"{base}/{name}", name, 1, retain=True)
    pub.publish(f"{base}/b", b"", 1, retain=True)
    sub = peer(version, transport)
    sub.connect()
    sub.subscribe(base + "/+", 1)
    got = sorted((m.topic[-1], m.payload.decode(), m.retain) for m in (sub.next(), sub.next()))
    equal(got, [("a", "a", True), ("c", "c", True)])
    pub.publish(f"{base}/a", "live", 1, retain=True)
    live = sub.next()
    equal((live.payload, live.retain), (b"live", False))
    for name in "ac":
        pub.publish(f"{base}/{name}", b"", 1, retain=True)


def sends_the_will_of_a_lost_client(version, transport, base):
    watcher = peer(version, transport)
    watcher.connect()
    watcher.subscribe(base + "/#", 1)
    doomed = peer(version, transport, will=(base + "/will", "gone", 1, False))
    doomed.connect()
    doomed.cut()
    will = watcher.next()
    equal((will.topic, will.payload, will.qos), (base + "/will", b"gone", 1))
    polite = peer(version, transport, will=(base + "/never", "gone", 1, False))
    polite.connect()
    polite.close()
    watcher.publish(base + "/marker", "m", 1)
    equal(watcher.next().topic, base + "/marker")


def keeps_the_session_while_away(version, transport, base):
    name = base.replace("/", "")
    sub = peer(version, transport, client_id=name, clean=False, expiry=600)
    equal(sub.connect()[0], False)
    sub.subscribe(base, 2)
    sub.cut()
    pub = peer(version, transport)
    pub.connect()
    for i in range(50):
        pub.publish(base, str(i), 1)
    again = peer(version, transport, client_id=name, clean=False, expiry=600)
    present = again.connect()[0]
    if version != "v31":  # 3.1 has no such flag
        equal(present, True)
    equal(again.next_payloads(50), [str(i) for i in range(50)])
    again.close()
    fresh = peer(version, transport, client_id=name, clean=True)
    equal(fresh.connect()[0], False)
    fresh.subscribe(base + "/marker", 1)
    pub.publish(base, "for nobody", 1)
    pub.publish(base + "/marker", "m", 1)
    equal(fresh.next().topic, base + "/marker")


def carries_large_payloads(version, transport, base):
    one = peer(version, transport)
    one.connect()
    one.subscribe(base, 1)
    for size in (0, 1, 127, 128, 16383, 16384, 65535, 65536, 1_000_000):
        payload = os.urandom(size)
        one.publish(base, payload, 1)
        if one.next().payload != payload:
            raise AssertionError(f"a payload of {size} bytes came back changed")


def unsubscribes(version, transport, base):
    one = peer(version, transport)
    one.connect()
    one.subscribe(base + "/a", 1)
    one.subscribe(base + "/b", 1)
    one.publish(base + "/a", "1", 1)
    equal(one.next().payload, b"1")
    one.unsubscribe(base + "/a")
    one.publish(base + "/a", "2", 1)
    one.publish(base + "/b", "3", 1)
    equal(one.next().payload, b"3")


def takes_the_client_over(version, transport, base):
    name = base.replace("/", "")
    first = peer(version, transport, client_id=name)
    first.connect()
    second = peer(version, transport, client_id=name)
    second.connect()
    reason = first.left.get(timeout=SECS)
    if version == "v5":
        equal(reason.value, 0x8E)
    second.subscribe(base, 1)
    second.publish(base, "still here", 1)
    equal(second.next().payload, b"still here")


# --- MQTT 5.0 only -------------------------------------------------------------------------------------------------------


def forwards_properties(transport, base):
    one = peer("v5", transport)
    one.connect()
    options = Properties(PacketTypes.SUBSCRIBE)
    options.SubscriptionIdentifier = 268_435_455
    one.client.subscribe(base, 1, properties=options)
    one.acked.get(timeout=SECS)
    sent = Properties(PacketTypes.PUBLISH)
    sent.PayloadFormatIndicator = 1
    sent.MessageExpiryInterval = 1000
    sent.ContentType = "text/plain"
    sent.ResponseTopic = base + "/answers"
    sent.CorrelationData = b"\x00\x01\xff"
    pairs = [("k", "v"), ("a", "b"), ("k", "again"), ("", "")]
    sent.UserProperty = pairs
    one.publish(base, "x", 1, properties=sent)
    got = one.next().properties
    equal(got.UserProperty, pairs)
    equal((got.ContentType, got.ResponseTopic, got.CorrelationData, got.PayloadFormatIndicator),
          ("text/plain", base + "/answers", b"\x00\x01\xff", 1))
    equal(got.SubscriptionIdentifier, [268_435_455])
    if not 990 <= got.MessageExpiryInterval <= 1000:
        raise AssertionError(f"Message Expiry Interval {got.MessageExpiryInterval} of 1000")


def obeys_subscription_options(transport, base):
    one, other = peer("v5", transport), peer("v5", transport)
    one.connect()
    other.connect()
    other.publish(base + "/r", "kept", 1, retain=True)
    quiet = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True,
                             retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
    one.client.subscribe(base + "/#", options=quiet)
    one.acked.get(timeout=SECS)
    one.publish(base + "/own", "no echo", 1)
    other.publish(base + "/r", "as published", 1, retain=True)
    got = one.next()
    equal((got.payload, got.retain), (b"as published", True))
    other.publish(base + "/r", b"", 1, retain=True)


def resolves_topic_aliases(transport, base):
    one = peer("v5", transport)
    _, _, connack = one.connect()
    if getattr(connack, "TopicAliasMaximum", 0) < 2:
        raise AssertionError("the broker takes no topic aliases")
    one.subscribe(base + "/#", 1)
    for number, topic in ((1, "/a"), (2, "/b")):
        alias = Properties(PacketTypes.PUBLISH)
        alias.TopicAlias = number
        one.publish(base + topic, "named", 1, properties=alias)
        one.publish("", "by alias", 1, properties=alias)
    got = [one.next() for _ in range(4)]
    equal([m.topic for m in got], [base + "/a"] * 2 + [base + "/b"] * 2)


def assigns_a_client_id(transport, base):
    one = peer("v5", transport)
    _, _, connack = one.connect()
    if not getattr(connack, "AssignedClientIdentifier", ""):
        raise AssertionError("no Assigned Client Identifier")


def shares_among_a_group(transport, base):
    members = [peer("v5", transport) for _ in range(3)]
    for member in members:
        member.connect()
        member.subscribe(f"$share/group/{base}", 1)
    pub = peer("v5", transport)
    pub.connect()
    for i in range(30):
        pub.publish(base, str(i), 1)
    deadline = time.monotonic() + SECS
    while sum(m.messages.qsize() for m in members) < 30 and time.monotonic() < deadline:
        time.sleep(0.01)
    got = [m.next_payloads(m.messages.qsize()) for m in members]
    equal(sorted(int(p) for one in got for p in one), list(range(30)))
    if not all(got):
        raise AssertionError(f"a member got nothing: {[len(one) for one in got]}")


def delays_the_will(transport, base):
    watcher = peer("v5", transport)
    watcher.connect()
    watcher.subscribe(base, 1)
    started = time.monotonic()
    properties = Properties(PacketTypes.WILLMESSAGE)
    properties.WillDelayInterval = 1
    doomed = peer("v5", transport, client_id=base.replace("/", ""), expiry=60, will=(base, "late", 1, False, properties))
    doomed.connect()
    doomed.cut()
    equal(watcher.next().payload, b"late")
    if time.monotonic() - started < 0.9:
        raise AssertionError("the Will came before its delay was over")


# --- any version -----------------------------------------------------------------------------------------------------------


def survives_its_keep_alive(base):
    """A client that only pings stays connected beyond one and a half keep-alives."""
    one = peer("v311", "tcp")
    one.connect(keepalive=1)
    one.subscribe(base, 0)
    try:
        one.left.get(timeout=4)
        raise AssertionError("a pinging client was disconnected")
    except queue.Empty:
        pass
    one.publish(base, "alive", 0)
    equal(one.next().payload, b"alive")


def twenty_clients_at_once(base):
    """Twenty publishers in threads of their own; one subscriber sees each one's messages in order."""
    sub = peer("v5", "ws")
    sub.connect()
    sub.subscribe(base + "/+", 1)

    def work(number):
        pub = Peer("v311", TRANSPORTS[number % 4])
        pub.connect()
        for i in range(50):
            pub.publish(f"{base}/{number}", str(i), 1)
        pub.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    seen = {}
    for _ in range(20 * 50):
        message = sub.next()
        seen.setdefault(message.topic, []).append(int(message.payload))
    for thread in threads:
        thread.join(SECS)
    equal(len(seen), 20)
    for numbers in seen.values():
        equal(numbers, list(range(50)))


def presents_a_client_certificate(base):
    one = peer("v5", "mtls")
    certs = os.environ["EXT_CERTS"]
    one.client._ssl_context.load_cert_chain(os.path.join(certs, "client.crt"), os.path.join(certs, "client.key"))
    one.connect()
    one.subscribe(base, 1)
    one.publish(base, "trusted", 1)
    equal(one.next().payload, b"trusted")


# What Debian's mosquitto cannot do, for a run that tests these tests: `run --broker mosquitto`.
MOSQUITTO_CANNOT = {
    "v5 takes_the_client_over": "mosquitto 2.0 closes without DISCONNECT 0x8E",
    "ws carries_large_payloads": "mosquitto 2.0 loses WebSocket messages above 130 KB",
    "wss carries_large_payloads": "mosquitto 2.0 loses WebSocket messages above 130 KB",
}


def check(name, test, *args):
    base = "paho/" + name
    if os.environ["EXT_KIND"] == "mosquitto":
        for arg in args:
            why = MOSQUITTO_CANNOT.get(f"{arg} {test.__name__}")
            if why:
                print(f"test external::paho_python::{name} ... skipped: {why}", flush=True)
                return
    try:
        test(*args, base)
        print(f"test external::paho_python::{name} ... ok", flush=True)
    except queue.Empty:
        where = [f for f in traceback.extract_tb(sys.exc_info()[2]) if f.name == test.__name__][-1]
        print(f"test external::paho_python::{name} ... FAILED: nothing came within {SECS} s "
              f"(line {where.lineno}: {where.line})", flush=True)
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.name == test.__name__]
        print(f"test external::paho_python::{name} ... FAILED: {type(error).__name__}: {error} "
              f"(line {lines[-1] if lines else '?'})", flush=True)
    finally:
        while opened:
            try:
                opened.pop().close()
            except Exception:
                pass


EVERYWHERE = (delivers_every_qos_in_order, keeps_retained_messages, sends_the_will_of_a_lost_client,
              keeps_the_session_while_away, carries_large_payloads, unsubscribes, takes_the_client_over)
ONLY_V5 = (forwards_properties, obeys_subscription_options, resolves_topic_aliases, assigns_a_client_id,
           shares_among_a_group, delays_the_will)
ONCE = (survives_its_keep_alive, twenty_clients_at_once, presents_a_client_certificate)

for each in EVERYWHERE:
    for v in VERSIONS:
        for t in TRANSPORTS:
            if v == "v31" and t in ("tls", "wss"):
                continue  # 3.1 differs in CONNECT only; two transports of it are enough
            check(f"{v}_{t}_{each.__name__}", each, v, t)
for each in ONLY_V5:
    for t in ("tcp", "ws"):
        check(f"v5_{t}_{each.__name__}", each, t)
for each in ONCE:
    check(each.__name__, each)
print("suite done")
