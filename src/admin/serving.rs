//! The connections of the admin port, and what holds whoever wants to hold them.
//!
//! A request whose head does not come within [`super::HEAD_TIMEOUT`] ends its connection; a connection ends [`super::CONNECTION_LIFE`] after it began, at the latest
//! when the request under way has had its time. When all places are taken, the oldest connection without a request under way makes room for a new one:
//! whoever holds connections open without a word cannot keep a probe out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tracing::warn;

use super::{CONNECTION_LIFE, CONNECTIONS_MAX, HEAD_TIMEOUT, REQUEST_TIMEOUT};
use crate::metrics;

/// Bytes of a head at the most, and its headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// How long accepting pauses when the system has no more sockets to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct From(pub IpAddr);

/// An open connection.
struct Open {
    /// A request is worked on.
    busy: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Accepts for ever.
pub(super) async fn accept(socket: TcpListener, router: Router) {
    let mut open = VecDeque::new();
    loop {
        let (stream, from) = match socket.accept().await {
            Ok((stream, from)) => (stream, From(from.ip().to_canonical())),
            Err(error) => {
                if metrics::admit_line("admin accept").is_some() {
                    warn!(event = "admin", %error, "the admin port cannot accept");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if make_room(&mut open) {
            let busy = Arc::<AtomicBool>::default();
            let task = tokio::spawn(serve((stream, from), router.clone(), busy.clone())).abort_handle();
            open.push_back(Open { busy, task });
        }
    }
}

/// Whether there is room for one more.
fn make_room(open: &mut VecDeque<Open>) -> bool {
    open.retain(|connection| !connection.task.is_finished());
    if open.len() < CONNECTIONS_MAX {
        return true;
    }
    match open.iter().position(|connection| !connection.busy.load(Ordering::Acquire)) {
        Some(oldest) => {
            open.remove(oldest).inspect(|connection| connection.task.abort());
            true
        }
        None => false,
    }
}

async fn serve((stream, from): (TcpStream, From), router: Router, busy: Arc<AtomicBool>) {
    // Answers are written whole; without it they are only later.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(from);
        let (busy, answer) = (busy.clone(), router.call(request));
        async move {
            busy.store(true, Ordering::Release);
            let answer: Result<Response<axum::body::Body>, Infallible> = answer.await;
            busy.store(false, Ordering::Release);
            answer
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    // What a connection ends with is its client's affair: it was answered, or went away.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = tokio::time::sleep(CONNECTION_LIFE) => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(REQUEST_TIMEOUT, connection).await;
        }
    }
}
