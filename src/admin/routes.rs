//! From a request to the row of the table that it is for, and what stands before each.
//!
//! | file | what is asked there |
//! | --- | --- |
//! | `about` | the port itself: metrics, its document, the audit log |
//! | `access` | bans, what the rules say |
//! | `clients` | clients |
//! | `cluster` | the cluster and who is in it |
//! | `keys` | API keys |
//! | `messages` | what is retained, and what is published |
//! | `nodes` | nodes, one that is emptied, and clients that are let go to others |
//! | `topics` | topics |
//!
//! Whatever is wrong with a request comes back as [`Refused`] with a code; nothing of a request reaches an assertion.

pub(super) mod about;
pub(super) mod access;
pub(super) mod clients;
pub(super) mod cluster;
pub(super) mod keys;
pub(super) mod messages;
pub(super) mod nodes;
pub(super) mod topics;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest as _, MatchedPath, Path, Query, Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{self, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::audit::PATH_BYTES_MAX;
use super::health::RETRY_SECS;
use super::serving::From;
use super::table::{Method, Route, TABLE};
use super::view::{Audited, Refused};
use super::{BODY_BYTES_MAX, PAGE_DEFAULT, PAGE_MAX, PageRequest, REQUEST_TIMEOUT, Source, Stage, Trouble, health};

/// No text of MQTT is longer, a client id least of all.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

pub(super) fn router(stage: Arc<Stage>) -> Router {
    let rows = TABLE.iter().fold(Router::new(), |rows, route| rows.route(route.path, (route.endpoint)()));
    let rows = rows
        .fallback(unknown)
        .layer(middleware::from_fn_with_state(stage.clone(), pass))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    Router::new()
        .route("/health/live", get(health::live))
        .route("/livez", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/readyz", get(health::ready))
        .route("/healthz", get(health::ready))
        .route("/health/startup", get(health::startup))
        .route("/health/cluster", get(health::cluster))
        .method_not_allowed_fallback(async || wrong_method("GET"))
        .merge(rows)
        .with_state(stage)
}

/// Judges the request, takes its body, and gives it a place and its time; and notes what it was if it is to change something. Who is slow to send the body takes no place from others meanwhile.
async fn pass(State(stage): State<Arc<Stage>>, mut request: Request<Body>, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = matched.as_deref().and_then(|path| row(request.method(), path));
    let from = request.extensions().get::<From>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |from| from.0);
    let head = (request.uri(), request.headers());
    let caller = match stage.callers.judge(&stage.keys, route, from, head) {
        Ok(caller) => caller,
        Err(trouble) => {
            // Who is known and may not is told of; who is not known asks for nothing in anybody's name.
            if let (Some(route), "role" | "scope") = (route, trouble.code) {
                stage.note(route, request.uri().path(), ("refused", from), trouble.status, trouble.code).await;
            }
            return trouble.into_response();
        }
    };
    let route = match (route, matched) {
        (Some(route), _) => route,
        // Nothing is asked that is no row, whatever the router knows.
        (None, Some(path)) => return wrong_method(&methods_of(path.as_str())).into_response(),
        (None, None) => return unknown().await.into_response(),
    };
    let path = request.uri().path().to_owned();
    request.extensions_mut().insert(caller.clone());
    let response = answered(&stage, request, next).await;
    let code = response.extensions().get::<Code>().map_or("", |code| code.0);
    stage.note(route, &path, (&caller.name, from), response.status().as_u16(), code).await;
    response
}

async fn answered(stage: &Stage, request: Request<Body>, next: Next) -> Response {
    let answered = async {
        let (parts, body) = request.into_parts();
        let body = Bytes::from_request(Request::from_parts(parts.clone(), body), &()).await.map_err(unread)?;
        // Nobody closes it.
        let _place = stage.places.acquire().await.ok();
        Ok::<_, Trouble>(next.run(Request::from_parts(parts, Body::from(body))).await)
    };
    match tokio::time::timeout(REQUEST_TIMEOUT, answered).await {
        Ok(response) => response.into_response(),
        Err(_) => Trouble::new(503, "timeout", "there was no answer in time").into_response(),
    }
}

fn row(method: &http::Method, path: &str) -> Option<&'static Route> {
    let method = match *method {
        http::Method::GET | http::Method::HEAD => Method::Get,
        http::Method::POST => Method::Post,
        http::Method::PUT => Method::Put,
        http::Method::DELETE => Method::Delete,
        _ => return None,
    };
    TABLE.iter().find(|route| route.method == method && route.path == path)
}

fn methods_of(path: &str) -> String {
    let methods = TABLE.iter().filter(|route| route.path == path).map(|route| route.method.name().to_uppercase());
    methods.collect::<Vec<_>>().join(" or ")
}

impl Stage {
    /// Writes down who asked for a change and what came of it.
    async fn note(
        self: &Arc<Self>,
        route: &Route,
        path: &str,
        (by, from): (&str, IpAddr),
        status: u16,
        code: &'static str,
    ) {
        if !route.is_audited() {
            return;
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = Audited {
            number: 0,
            at_ms: at.as_millis() as u64,
            by: by.to_owned(),
            from: from.to_string(),
            method: route.method.name().to_uppercase(),
            path: path.chars().take(PATH_BYTES_MAX).collect(),
            status,
            code: code.to_owned(),
        };
        let stage = self.clone();
        // It counts what it cannot write, and a runtime that ends writes nothing more.
        let _ = tokio::task::spawn_blocking(move || stage.audit.note(line)).await;
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
    Trouble::new(404, "unknown_path", "there is nothing here").hint(
        "GET /api/v1/openapi.json has all paths but /health/live, /health/ready, /health/startup and /health/cluster",
    )
}

fn wrong_method(methods: &str) -> Trouble {
    Trouble::new(405, "wrong_method", "this path takes another method").hint(format!("this one takes {methods}"))
}

/// The step of a path that is some text of a user: not empty, and not longer than any text of MQTT.
fn step(path: Result<Path<String>, PathRejection>, what: &str) -> Result<Arc<str>, Trouble> {
    let Path(step) = path.map_err(|error| invalid(&error.body_text()))?;
    if step.is_empty() || step.len() > TEXT_BYTES_MAX {
        return Err(invalid(&format!("the {what} is empty or too long")));
    }
    Ok(step.into())
}

fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Trouble> {
    query.map(|Query(query)| query).map_err(|error| invalid(&error.body_text()))
}

/// How many a list is asked for.
fn limit(asked: Option<usize>) -> Result<usize, Trouble> {
    let limit = asked.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(invalid(&format!("limit: must be from 1 to {PAGE_MAX}")));
    }
    Ok(limit)
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

/// The same where nothing at all may be said.
fn json_or_nothing<T: DeserializeOwned + Default>(body: &Bytes, expected: &str) -> Result<T, Trouble> {
    if body.trim_ascii().is_empty() { Ok(T::default()) } else { json(body, expected) }
}

fn started(stage: &Stage) -> Result<&Arc<dyn Source>, Trouble> {
    stage
        .source()
        .ok_or_else(|| Trouble::new(503, "starting", "the node is starting").hint("/health/startup says when it has"))
}

fn invalid(message: &str) -> Trouble {
    Trouble::new(400, "invalid", message)
}

/// The word of a refusal, for the audit log.
#[derive(Clone, Copy)]
struct Code(&'static str);

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = Refused { code: self.code.to_owned(), message: self.message, hint: self.hint };
        let mut response = (status, Json(body)).into_response();
        response.extensions_mut().insert(Code(self.code));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECS));
        }
        response
    }
}
