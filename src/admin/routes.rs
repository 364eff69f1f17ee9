//! The table of paths, and what each asks its [`Source`].
//!
//! Whatever is wrong with a request comes back as [`Refused`] with a code; nothing of a request reaches an assertion.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Path, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::health::RETRY_SECS;
use super::view::Refused;
use super::{
    BODY_BYTES_MAX, Exposition, PAGE_DEFAULT, PAGE_MAX, PageRequest, REQUEST_TIMEOUT, REQUESTS_AT_ONCE, Source, Stage,
    Token, Trouble, guard, health, metrics,
};

/// No text of MQTT is longer, a client id least of all.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// What stands before everything that is not about health.
struct Gate {
    token: Option<Token>,
    places: Semaphore,
}

pub(super) fn router(stage: Arc<Stage>, token: Option<Token>) -> Router {
    let gate = Arc::new(Gate { token, places: Semaphore::new(REQUESTS_AT_ONCE) });
    let guarded = Router::new()
        .route("/metrics", get(scrape))
        .route("/api/v1/clients", get(clients))
        .route("/api/v1/clients/{id}", get(client))
        .route("/api/v1/clients/{id}/kick", post(kick))
        .route("/api/v1/cluster/status", get(status))
        .route("/api/v1/cluster/join", post(join))
        .route("/api/v1/cluster/leave", post(leave))
        .route("/api/v1/cluster/force-leave", post(force_leave))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(gate, pass))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    Router::new()
        .route("/health/live", get(health::live))
        .route("/livez", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/readyz", get(health::ready))
        .route("/healthz", get(health::ready))
        .route("/health/startup", get(health::startup))
        .route("/health/cluster", get(health::cluster))
        .method_not_allowed_fallback(wrong_method)
        .merge(guarded)
        .with_state(stage)
}

/// Judges the request, takes its body, and gives it a place and its time. Who is slow to send the body takes no place from others meanwhile.
async fn pass(State(gate): State<Arc<Gate>>, request: Request<Body>, next: Next) -> Response {
    if let Err(trouble) = guard::judge(gate.token.as_ref(), request.uri(), request.headers()) {
        return trouble.into_response();
    }
    let answered = async {
        let (parts, body) = request.into_parts();
        let body = Bytes::from_request(Request::from_parts(parts.clone(), body), &()).await.map_err(unread)?;
        // Nobody closes it.
        let _place = gate.places.acquire().await.ok();
        Ok::<_, Trouble>(next.run(Request::from_parts(parts, Body::from(body))).await)
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, answered).await {
        Ok(response) => response.into_response(),
        Err(_) => Trouble::new(503, "timeout", "there was no answer in time").into_response(),
    }
}

fn unread(error: BytesRejection) -> Trouble {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Trouble::new(413, "too_large", format!("a body has at most {BODY_BYTES_MAX} bytes"))
        }
        _ => invalid("the body did not come whole"),
    }
}

async fn unknown() -> Trouble {
    Trouble::new(404, "unknown_path", "there is nothing here")
        .hint("/health/live, /health/ready, /health/startup, /health/cluster, /metrics, /api/v1/clients, /api/v1/cluster/status")
}

async fn wrong_method() -> Trouble {
    Trouble::new(405, "wrong_method", "this path takes another method")
        .hint("GET what is asked for; POST to kick, join, leave and force-leave")
}

async fn scrape(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    let source = started(&stage)?;
    let mut out = Exposition::default();
    metrics::cluster(&mut out, &source.cluster());
    source.metrics(&mut out).await;
    let text = ([(CONTENT_TYPE, Exposition::CONTENT_TYPE)], out.finish());
    Ok(text.into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    limit: Option<usize>,
    after: Option<String>,
}

async fn clients(
    State(stage): State<Arc<Stage>>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let Query(PageQuery { limit, after }) = query.map_err(|error| invalid(&error.body_text()))?;
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(invalid(&format!("limit: must be from 1 to {PAGE_MAX}")));
    }
    let asked = PageRequest { limit, after: after.map(Arc::from) };
    Ok(Json(started(&stage)?.clients(asked).await?).into_response())
}

async fn client(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let id = client_id(path)?;
    let found = started(&stage)?.client(id.clone()).await?;
    found.map(|client| Json(client).into_response()).ok_or_else(|| no_client(&id))
}

async fn kick(State(stage): State<Arc<Stage>>, path: Result<Path<String>, PathRejection>) -> Result<Response, Trouble> {
    let id = client_id(path)?;
    let kicked = started(&stage)?.kick(id.clone()).await?;
    kicked.map(|kicked| Json(kicked).into_response()).ok_or_else(|| no_client(&id))
}

fn client_id(path: Result<Path<String>, PathRejection>) -> Result<Arc<str>, Trouble> {
    let Path(id) = path.map_err(|error| invalid(&error.body_text()))?;
    if id.is_empty() || id.len() > TEXT_BYTES_MAX {
        return Err(invalid("the client id is empty or too long"));
    }
    Ok(id.into())
}

fn no_client(id: &str) -> Trouble {
    Trouble::new(404, "no_such_client", format!("there is no session of a client called {id:?}"))
        .hint("`holdfast client list` has them all, and so has GET /api/v1/clients")
}

async fn status(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    Ok(Json(started(&stage)?.status().await).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinBody {
    address: String,
}

async fn join(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let JoinBody { address } = json(&body, r#"{"address": "HOST:PORT"}"#)?;
    let port = address.rsplit_once(':').and_then(|(host, port)| Some(port).filter(|_| !host.is_empty()));
    if address.len() > TEXT_BYTES_MAX || !port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err(invalid("address: expected HOST:PORT, the cluster address of a node"));
    }
    started(&stage)?.join(address).await?;
    Ok(done())
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaveBody {
    force: bool,
}

async fn leave(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let LeaveBody { force } = match body.trim_ascii() {
        [] => LeaveBody::default(),
        _ => json(&body, r#"nothing, or {"force": true}"#)?,
    };
    let leaving = started(&stage)?.leave(force).await?;
    let status = if leaving.done { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(leaving)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForceLeaveBody {
    node: String,
}

async fn force_leave(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let ForceLeaveBody { node } = json(&body, r#"{"node": "NAME"}"#)?;
    if node.is_empty() || node.len() > 64 {
        return Err(invalid("node: expected the name or the id of a node"));
    }
    started(&stage)?.force_leave(node).await?;
    Ok(done())
}

/// What is said when there is nothing to say.
fn done() -> Response {
    Json(HashMap::from([("done", true)])).into_response()
}

/// `expected`: a body as it should be.
fn json<T: DeserializeOwned>(body: &Bytes, expected: &str) -> Result<T, Trouble> {
    let wrong = |why: &dyn std::fmt::Display| invalid(&format!("the body: {why}")).hint(format!("expected {expected}"));
    if body.trim_ascii().is_empty() {
        return Err(wrong(&"it is empty"));
    }
    serde_json::from_slice(body).map_err(|error| wrong(&error))
}

fn started(stage: &Stage) -> Result<&Arc<dyn Source>, Trouble> {
    stage
        .0
        .get()
        .ok_or_else(|| Trouble::new(503, "starting", "the node is starting").hint("/health/startup says when it has"))
}

fn invalid(message: &str) -> Trouble {
    Trouble::new(400, "invalid", message)
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = Refused { code: self.code.to_owned(), message: self.message, hint: self.hint };
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECS));
        }
        response
    }
}
