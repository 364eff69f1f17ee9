//! Nodes: how much each has to do, one that is emptied, and clients that are let go to nodes that have fewer.

use serde::Deserialize;

use super::super::{RebalanceRequest, view};
use super::*;

pub(in crate::admin) async fn list(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    Ok(Json(started(&stage)?.nodes().await).into_response())
}

pub(in crate::admin) async fn show(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let name = step(path, "name")?;
    let source = started(&stage)?;
    let own = source.cluster().node;
    let nodes = source.nodes().await.nodes;
    let is_meant = |node: &view::NodeLoad| {
        *node.member.name == *name || *node.member.id == *name || (&*name == OWN && node.member.name == own)
    };
    let found = nodes.into_iter().find(is_meant);
    found.map(|node| Json(node).into_response()).ok_or_else(|| no_node(&name))
}

/// What the node that is asked may be called.
const OWN: &str = "local";

fn no_node(name: &str) -> Trouble {
    Trouble::new(404, "no_such_node", format!("there is no node called {name:?} in the cluster"))
        .hint("`holdfast node list` has them all; the one that is asked is also called `local`")
}

/// The name of the node that is meant.
fn meant(source: &Arc<dyn Source>, path: Result<Path<String>, PathRejection>) -> Result<Arc<str>, Trouble> {
    let name = step(path, "name")?;
    Ok(if &*name == OWN { source.cluster().node.into() } else { name })
}

pub(in crate::admin) async fn drain(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
    body: Bytes,
) -> Result<Response, Trouble> {
    let terms = terms(json_or_nothing(&body, r#"nothing, or {"rate": 100}"#)?)?;
    let source = started(&stage)?;
    let drain = source.drain(meant(source, path)?, terms).await?;
    Ok((StatusCode::ACCEPTED, Json(drain)).into_response())
}

fn terms(terms: view::DrainTerms) -> Result<view::DrainTerms, Trouble> {
    const HOUR_MS: u64 = 3_600_000;
    if terms.rate.is_some_and(|rate| !(1..=1_000_000).contains(&rate)) {
        return Err(invalid("rate: must be from 1 to 1000000 connections a second"));
    }
    if terms.grace_ms.is_some_and(|grace| grace > HOUR_MS) {
        return Err(invalid("grace_ms: must be at most an hour"));
    }
    if terms.spread_ms.is_some_and(|spread| !(1_000..=HOUR_MS).contains(&spread)) {
        return Err(invalid("spread_ms: must be from a second to an hour"));
    }
    if terms.redirect.as_ref().is_some_and(|to| to.len() > 1_024 || to.chars().any(char::is_control)) {
        return Err(invalid("redirect: must be at most 1024 bytes without control characters"));
    }
    Ok(terms)
}

pub(in crate::admin) async fn undrain(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let source = started(&stage)?;
    let undone = source.undrain(meant(source, path)?).await?;
    Ok(Json(HashMap::from([("undone", undone)])).into_response())
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RebalanceBody {
    /// By the names of nodes; 1 for those that are not in it.
    weights: HashMap<String, u32>,
    terms: view::DrainTerms,
}

fn rebalance(body: &Bytes) -> Result<RebalanceRequest, Trouble> {
    let RebalanceBody { weights, terms: asked } = json_or_nothing(body, r#"nothing, or {"weights": {"n4": 2}}"#)?;
    if weights.len() > 1_000 || weights.values().any(|weight| *weight > 1_000) {
        return Err(invalid("weights: at most 1000 of them, each from 0 to 1000"));
    }
    Ok(RebalanceRequest { weights, terms: terms(asked)? })
}

pub(in crate::admin) async fn plan(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    Ok(Json(started(&stage)?.rebalance_plan(rebalance(&body)?).await?).into_response())
}

pub(in crate::admin) async fn start(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let begun = started(&stage)?.rebalance_start(rebalance(&body)?).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
}

pub(in crate::admin) async fn stop(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    started(&stage)?.rebalance_stop().await?;
    Ok(done())
}

pub(in crate::admin) async fn transfer_leader(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    started(&stage)?.transfer_leader().await?;
    Ok(done())
}
