//! The probes: 200 when every check is good, else 503 with Retry-After; the body says which.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::Stage;
use super::view::{Check, Health};

/// When who is told 503 may come again, in seconds.
pub(super) const RETRY_SECS: &str = "2";

pub(super) async fn live(State(stage): State<Arc<Stage>>) -> Response {
    let checks = match stage.source() {
        Some(source) => source.live(),
        None => vec![Check::new("process", true, "starting")],
    };
    answer(checks)
}

pub(super) async fn ready(State(stage): State<Arc<Stage>>) -> Response {
    answer(stage.source().map_or_else(not_started, |source| source.ready()))
}

pub(super) async fn startup(State(stage): State<Arc<Stage>>) -> Response {
    answer(stage.source().map_or_else(not_started, |source| source.startup()))
}

/// 503 while the node cannot agree upon anything, or may serve nobody.
pub(super) async fn cluster(State(stage): State<Arc<Stage>>) -> Response {
    let Some(source) = stage.source() else {
        return answer(not_started());
    };
    let cluster = source.cluster();
    respond(cluster.quorum && !cluster.suspended, &cluster)
}

fn not_started() -> Vec<Check> {
    vec![Check::new("started", false, "the node is starting")]
}

fn answer(checks: Vec<Check>) -> Response {
    let good = checks.iter().all(|check| check.ok);
    let status = if good { "ok" } else { "failed" };
    respond(good, &Health { status: status.to_owned(), checks })
}

fn respond(good: bool, body: &impl Serialize) -> Response {
    let status = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !good {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECS));
    }
    response
}
