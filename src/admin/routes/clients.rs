//! Clients: all of them, one, and the end of its connection.

use serde::Deserialize;

use super::*;
use crate::admin::ClosedRequest;
use crate::admin::view::ClosedCursor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct PageQuery {
    limit: Option<usize>,
    after: Option<String>,
}

pub(in crate::admin) async fn list(
    State(stage): State<Arc<Stage>>,
    asked: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let PageQuery { limit, after } = query(asked)?;
    let asked = PageRequest { limit: super::limit(limit)?, after: after.map(Arc::from) };
    Ok(Json(started(&stage)?.clients(asked).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct ClosedQuery {
    state: String,
    client: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

pub(in crate::admin) async fn closed(
    State(stage): State<Arc<Stage>>,
    asked: Result<Query<ClosedQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let ClosedQuery { state, client, limit, after } = query(asked)?;
    if state != "closed" {
        return Err(invalid("state: must be closed").hint("GET /api/v1/clients has those that are open"));
    }
    let after = after
        .map(|after| after.parse::<ClosedCursor>().map_err(|()| invalid("after: must be `next` of an earlier page")));
    let limit = super::limit(limit)?;
    let asked = ClosedRequest { limit, after: after.transpose()?, client_id: client.map(Arc::from) };
    Ok(Json(started(&stage)?.closed(asked).await?).into_response())
}

pub(in crate::admin) async fn show(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let id = step(path, "client id")?;
    let found = started(&stage)?.client(id.clone()).await?;
    found.map(|client| Json(client).into_response()).ok_or_else(|| no_client(&id))
}

pub(in crate::admin) async fn kick(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let id = step(path, "client id")?;
    let kicked = started(&stage)?.kick(id.clone()).await?;
    kicked.map(|kicked| Json(kicked).into_response()).ok_or_else(|| no_client(&id))
}

fn no_client(id: &str) -> Trouble {
    Trouble::new(404, "no_such_client", format!("there is no session of a client called {id:?}"))
        .hint("`holdfast client list` has them all, and so has GET /api/v1/clients")
}
