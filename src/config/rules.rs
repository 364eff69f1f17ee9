//! What keys owe one another: rules that no key can break alone.
//!
//! A rule looks only at keys that could be read ([`Reading::good`]): a default that stands in for a wrong value must not raise a second error.

use std::time::Duration;

use super::cluster::{Cluster, ClusterTimers};
use super::listener::{Listener, Protocol, ProxyProtocol, Verify};
use super::reading::Reading;
use super::units::show_duration;
use super::{Admin, Config, Mqtt, Storage};

/// Notes everything that contradicts something else.
pub(super) fn check(config: &Config, reading: &mut Reading<'_>) {
    queue_holds_a_packet(&config.mqtt, reading);
    quota_holds_segments(&config.storage, reading);
    if let Some(cluster) = &config.cluster {
        node_of_a_cluster_has_a_name(reading);
        cluster_has_an_address_of_its_own(config, cluster, reading);
        elections_fit_into_a_lease(&cluster.timers, reading);
        subscribers_outwait_a_death(&cluster.timers, reading);
    }
    admin_is_not_open_to_others(&config.admin, reading);
    admin_has_an_address_of_its_own(config, reading);
    for (index, listener) in config.listeners.iter().enumerate() {
        let at = |key: &str| format!("listener[{index}].{key}");
        someone_can_log_in(config, listener, &at, reading);
        client_certificates_have_an_authority(listener, &at, reading);
        proxies_are_named(listener, &at, reading);
        keep_alive_caps_agree(&config.mqtt, listener, &at, reading);
        pings_come_before_keep_alive_ends(&config.mqtt, listener, &at, reading);
        differs_from_those_before(config, index, &at, reading);
    }
}

/// A session whose queue cannot hold one packet of the size that the broker accepts would lose it always.
fn queue_holds_a_packet(mqtt: &Mqtt, reading: &mut Reading<'_>) {
    let keys = ["mqtt.max_queued_bytes", "mqtt.max_packet_size"];
    if reading.good(&keys) && mqtt.max_queued_bytes < mqtt.max_packet_size as usize {
        let key = if reading.given(keys[0]) { keys[0] } else { keys[1] };
        let message = format!(
            "max_queued_bytes ({}) is smaller than max_packet_size ({}): a queue must hold the largest packet",
            mqtt.max_queued_bytes, mqtt.max_packet_size
        );
        reading.error_at(key, message);
    }
}

/// Two segments are in use or made ahead at any time, one is kept for what frees space, and one is being cleared.
const SEGMENTS_MIN: u64 = 4;

fn quota_holds_segments(storage: &Storage, reading: &mut Reading<'_>) {
    let keys = ["storage.max_bytes", "storage.segment_bytes"];
    let Some(max_bytes) = storage.max_bytes.filter(|_| reading.good(&keys)) else {
        return;
    };
    let least = SEGMENTS_MIN * storage.segment_bytes;
    if max_bytes < least {
        let message = format!(
            "max_bytes ({max_bytes}) must hold {SEGMENTS_MIN} segments, which are {least} bytes with segment_bytes = {}",
            storage.segment_bytes
        );
        reading.error_at(keys[0], message);
    }
}

/// The nodes of a cluster are told apart by their names, so the name that every node has by default is none.
fn node_of_a_cluster_has_a_name(reading: &mut Reading<'_>) {
    if !reading.given("node.name") && !reading.may_have_lost_its_name("node") {
        let message = "a node of a cluster needs a name of its own: add\n\
            \x20     [node]\n\
            \x20     name = \"n1\"";
        reading.error_at("cluster", message);
    }
}

fn cluster_has_an_address_of_its_own(config: &Config, cluster: &Cluster, reading: &mut Reading<'_>) {
    let keys = |index: usize| format!("listener[{index}].bind");
    let taken = config.listeners.iter().enumerate().find(|(index, listener)| {
        cluster.bind.port() != 0 && listener.bind == cluster.bind && reading.good(&[&keys(*index)])
    });
    if let Some((_, listener)) = taken.filter(|_| reading.good(&["cluster.bind"])) {
        let message = format!("bind: {} is already taken by listener \"{}\"", cluster.bind, listener.name);
        reading.error_at("cluster.bind", message);
    }
}

/// While a leader is elected nobody renews a lease, and a few elections may fail.
const ELECTIONS_IN_A_LEASE: u32 = 3;

fn elections_fit_into_a_lease(timers: &ClusterTimers, reading: &mut Reading<'_>) {
    let keys = ["cluster.lease", "cluster.margin", "cluster.renew", "cluster.election"];
    if !reading.good(&keys) {
        return;
    }
    let left = timers.lease.saturating_sub(timers.margin).saturating_sub(timers.renew);
    let needed = ELECTIONS_IN_A_LEASE * timers.election_max();
    if left <= needed {
        let key = keys.iter().copied().find(|key| reading.given(key)).unwrap_or("cluster");
        let message = format!(
            "lease ({}) without margin ({}) and renew ({}) leaves {}, and must leave more than {ELECTIONS_IN_A_LEASE} elections, \
             which take up to {} with election = \"{}\"",
            show_duration(timers.lease),
            show_duration(timers.margin),
            show_duration(timers.renew),
            show_duration(left),
            show_duration(needed),
            show_duration(timers.election)
        );
        reading.error_at(key, message);
    }
}

/// A node that died is waited for until it is known to be dead: no subscriber should be refused for it.
fn subscribers_outwait_a_death(timers: &ClusterTimers, reading: &mut Reading<'_>) {
    let keys = ["cluster.subscribe_deadline", "cluster.lease", "cluster.election"];
    let known_after = timers.lease + timers.election_max();
    if reading.good(&keys) && timers.subscribe_deadline <= known_after {
        let key = keys.iter().copied().find(|key| reading.given(key)).unwrap_or("cluster");
        let message = format!(
            "subscribe_deadline ({}) must be longer than a lease and an election ({}), after which a dead node is known to be dead",
            show_duration(timers.subscribe_deadline),
            show_duration(known_after)
        );
        reading.error_at(key, message);
    }
}

/// Who reaches the admin port can throw clients out.
fn admin_is_not_open_to_others(admin: &Admin, reading: &mut Reading<'_>) {
    let keys = ["admin.bind", "admin.token_file"];
    if !reading.good(&keys) || admin.is_loopback() || admin.token_file.is_some() {
        return;
    }
    let token = reading.beside("admin-token");
    let token = token.display();
    let message = format!(
        "bind: other machines can reach the admin port here, and there is no token that they must show.\n\
         \x20 To have one, run  (umask 077; head -c 32 /dev/urandom | base64 > {token})  and add\n\
         \x20     token_file = \"admin-token\"\n\
         \x20 Or keep the port on this machine:  bind = \"127.0.0.1:18083\"  or  bind = \"off\""
    );
    reading.error_at(keys[0], message);
}

fn admin_has_an_address_of_its_own(config: &Config, reading: &mut Reading<'_>) {
    let Some(bind) = config.admin.bind.filter(|bind| bind.port() != 0 && reading.good(&["admin.bind"])) else {
        return;
    };
    for (index, listener) in config.listeners.iter().enumerate() {
        let on_listener = format!("listener[{index}].bind");
        if listener.bind == bind && reading.good(&[&on_listener]) {
            let message = format!(
                "bind: {bind} is the address of the admin port; give one of them another, or say  [admin] bind = \"off\""
            );
            reading.error_at(&on_listener, message);
        }
    }
}

/// A listener that nobody can log in to is a mistake; so is one that is open to others without anybody having said so.
fn someone_can_log_in(config: &Config, listener: &Listener, at: &dyn Fn(&str) -> String, reading: &mut Reading<'_>) {
    let keys = [at("bind"), at("allow_anonymous"), "auth.password_file".to_owned()];
    let read_well = reading.good(&[&keys[0], &keys[1], &keys[2]]) && reading.given(&keys[0]);
    if !read_well || listener.allow_anonymous == Some(true) || listener.knows_somebody(&config.auth) {
        return;
    }
    let certificate = match &listener.tls {
        Some(tls) if tls.verify == Verify::Require => " (still only with a valid client certificate)",
        _ => "",
    };
    let (key, why) = if listener.is_loopback() {
        (&keys[1], "refuses clients without a password")
    } else {
        (&keys[0], "can be reached from other machines, so it lets nobody in without a password")
    };
    let passwords = reading.beside("passwords");
    let passwords = passwords.display();
    let message = format!(
        "listener \"{}\" on {} {why}, and there is no password file.\n\
         \x20 To have users with passwords, run  holdfast passwd -c {passwords} USER  and add\n\
         \x20     [auth]\n\
         \x20     password_file = \"passwords\"\n\
         \x20 Or, to let in anybody who can reach it{certificate}, put under this [[listener]]\n\
         \x20     allow_anonymous = true",
        listener.name, listener.bind
    );
    reading.error_at(key, message);
}

fn client_certificates_have_an_authority(listener: &Listener, at: &dyn Fn(&str) -> String, reading: &mut Reading<'_>) {
    let Some(tls) = &listener.tls else { return };
    let (ca, verify) = (at("tls.ca"), at("tls.verify"));
    if !reading.good(&[&ca, &verify]) {
        return;
    }
    let crl = at("tls.crl");
    if tls.crl.is_some() && tls.verify == Verify::None && reading.good(&[&crl]) {
        let message =
            "crl: is not used unless clients are asked for a certificate; add verify = \"require\" or \"optional\"";
        reading.error_at(&crl, message);
    }
    match (&tls.ca, tls.verify) {
        (None, Verify::Optional | Verify::Require) => {
            reading.error_at(&verify, "verify: needs ca, the authorities that client certificates must come from");
        }
        (Some(_), Verify::None) => {
            let message =
                "ca: is not used unless clients are asked for a certificate; add verify = \"require\" or \"optional\"";
            reading.error_at(&ca, message);
        }
        _ => {}
    }
}

/// A PROXY header is believed only from a proxy that is named: without one it would be believed from nobody, or from everybody.
fn proxies_are_named(listener: &Listener, at: &dyn Fn(&str) -> String, reading: &mut Reading<'_>) {
    let (protocol, proxies) = (at("proxy_protocol"), at("trusted_proxies"));
    let named = !listener.trusted_proxies.is_empty() || listener.proxy_protocol == ProxyProtocol::Off;
    if !named && reading.good(&[&protocol, &proxies]) {
        let message = "proxy_protocol: needs trusted_proxies, the addresses that may say whose connection it is, such as\n\
            \x20     trusted_proxies = [\"10.0.0.0/8\"]";
        reading.error_at(&protocol, message);
    }
}

/// Two caps on Keep Alive: the smaller holds, so a larger one that somebody wrote on a listener would be a wish without effect.
fn keep_alive_caps_agree(mqtt: &Mqtt, listener: &Listener, at: &dyn Fn(&str) -> String, reading: &mut Reading<'_>) {
    let (on_listener, on_mqtt) = (at("max_server_keepalive"), "mqtt.max_keepalive");
    if !reading.given(&on_listener) || !reading.good(&[&on_listener, on_mqtt]) {
        return;
    }
    let Some(asked) = listener.max_server_keepalive else {
        return;
    };
    let cap = Duration::from_secs(mqtt.max_keepalive.into());
    if !cap.is_zero() && asked > cap {
        let message = format!(
            "max_server_keepalive ({}) contradicts max_keepalive of [mqtt] ({}), which is smaller",
            show_duration(asked),
            show_duration(cap)
        );
        reading.error_at(&on_listener, message);
    }
}

/// Pings exist so that a proxy sees life more often than the client itself shows it.
fn pings_come_before_keep_alive_ends(
    mqtt: &Mqtt,
    listener: &Listener,
    at: &dyn Fn(&str) -> String,
    reading: &mut Reading<'_>,
) {
    let (ping, on_listener, on_mqtt) = (at("ping_interval"), at("max_server_keepalive"), "mqtt.max_keepalive");
    if listener.protocol != Protocol::Ws || !reading.good(&[&ping, &on_listener, on_mqtt, &at("protocol")]) {
        return;
    }
    // Where the pings were not written down, a short keep-alive makes them needless, not wrong.
    let Some(keep_alive) = listener.keep_alive_cap(mqtt).filter(|_| reading.given(&ping)) else {
        return;
    };
    if listener.ping_interval >= keep_alive {
        let message = format!(
            "ping_interval ({}) must be shorter than the longest Keep Alive that clients are granted here ({})",
            show_duration(listener.ping_interval),
            show_duration(keep_alive)
        );
        reading.error_at(&ping, message);
    }
}

/// No two listeners share a name or an address.
fn differs_from_those_before(config: &Config, index: usize, at: &dyn Fn(&str) -> String, reading: &mut Reading<'_>) {
    let listener = &config.listeners[index];
    let before = &config.listeners[..index];
    let lost = |index: usize| reading.may_have_lost_its_name(&format!("listener[{index}]"));
    let named = reading.good(&[&at("name"), &at("protocol")]) && !lost(index);
    if named && before.iter().enumerate().any(|(at, other)| other.name == listener.name && !lost(at)) {
        let message =
            format!("name: there is another listener called \"{}\"; give each a name of its own", listener.name);
        reading.error_at(&at("name"), message);
    }
    let bound = listener.bind.port() != 0 && reading.good(&[&at("bind")]);
    if let Some(other) = before.iter().find(|other| bound && other.bind == listener.bind) {
        let message = format!("bind: {} is already taken by listener \"{}\"", listener.bind, other.name);
        reading.error_at(&at("bind"), message);
    }
}
