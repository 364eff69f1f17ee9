//! The cluster, and who is in it.

use serde::Deserialize;

use super::*;

pub(in crate::admin) async fn status(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    Ok(Json(started(&stage)?.status().await).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinBody {
    address: String,
}

pub(in crate::admin) async fn join(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
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

pub(in crate::admin) async fn leave(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let LeaveBody { force } = json_or_nothing(&body, r#"nothing, or {"force": true}"#)?;
    let leaving = started(&stage)?.leave(force).await?;
    let status = if leaving.done { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(leaving)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForceLeaveBody {
    node: String,
}

pub(in crate::admin) async fn force_leave(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let ForceLeaveBody { node } = json(&body, r#"{"node": "NAME"}"#)?;
    started(&stage)?.force_leave(node_name(node)?).await?;
    Ok(done())
}

fn node_name(node: String) -> Result<String, Trouble> {
    if node.is_empty() || node.len() > 64 {
        return Err(invalid("node: expected the name or the id of a node"));
    }
    Ok(node)
}
