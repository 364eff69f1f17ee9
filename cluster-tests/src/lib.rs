//! Tests of Holdfast from outside: real processes, raw sockets, and a codec of their own.
//!
//! Nothing here uses the broker's codec or session code: a test that shared them would share their faults.
//!
//! - [`wire`] builds packets byte by byte (legal ones and others) and parses, strictly, what a server sends;
//! - [`transport`] is one connection over TCP, TLS, WebSocket or both, where every read has a deadline; [`websocket`] the client side of RFC 6455;
//! - [`client`] speaks MQTT over a transport, one packet at a time;
//! - [`process`] starts the program with a configuration of the test's own, on ports the kernel chose, and keeps its log;
//! - [`scene`] is a broker with a data directory that outlives it, and what is done with it again and again;
//! - [`stage`] is what a test works on: a broker, a transport, and names that no other test uses;
//! - [`history`] is what clients were promised and what they got, [`checker`] judges it, [`dice`] makes seeded choices;
//! - [`load`] is a cast of clients that break off at any moment and record what they were promised;
//! - [`power_cut`] puts the program on a disk that loses its power, is full, or fails;
//! - [`cluster`] is several nodes with a fault relay on each way between two of them, and what a test does to them;
//! - [`certificates`] makes an authority and its leaves at run time.
//!
//! `HOLDFAST_BIN` names the program to test; without it the test run builds `holdfast` once. With `HOLDFAST_TEST_ADDR`
//! (and `HOLDFAST_TEST_WS_ADDR`) the conformance tests run against a broker that is already there, of any make.
//!
//! Read first: `tests/conformance/connect.rs`.

pub mod certificates;
pub mod checker;
pub mod client;
pub mod cluster;
pub mod dice;
pub mod history;
pub mod load;
pub mod power_cut;
pub mod process;
pub mod scene;
pub mod stage;
pub mod transport;
pub mod websocket;
pub mod wire;
