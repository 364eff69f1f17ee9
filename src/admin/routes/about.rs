//! The port itself: what is counted, its own document, and what was changed by way of it.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use serde::Deserialize;

use super::super::{Exposition, Kind, metrics, openapi};
use super::*;

pub(in crate::admin) async fn scrape(
    State(stage): State<Arc<Stage>>,
    headers: axum::http::HeaderMap,
) -> Result<Response, Trouble> {
    let source = started(&stage)?;
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let mut out = Exposition::accepted_by(accept);
    metrics::cluster(&mut out, &source.cluster());
    source.metrics(&mut out).await;
    stage.callers.metrics(&mut out);
    let help = "Changes that could not be written into the audit log.";
    out.single("audit_unwritten_total", Kind::Counter, help, stage.audit.unwritten() as f64);
    let text = ([(CONTENT_TYPE, out.content_type())], out.finish());
    Ok(text.into_response())
}

pub(in crate::admin) async fn openapi() -> Response {
    Json(openapi::document()).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct AuditQuery {
    limit: Option<usize>,
    after: Option<u64>,
}

pub(in crate::admin) async fn audit(
    State(stage): State<Arc<Stage>>,
    asked: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let AuditQuery { limit, after } = query(asked)?;
    Ok(Json(stage.audit.page(super::limit(limit)?, after)).into_response())
}
