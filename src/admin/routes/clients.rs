//! Clients: all of them, one, and the end of its connection.

use serde::Deserialize;

use super::*;

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
