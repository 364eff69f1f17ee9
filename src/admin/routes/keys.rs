//! API keys. The file is read and written on threads that may wait for a disk.

use std::io;

use serde::Deserialize;

use super::super::keys::Keys;
use super::super::table::{Role, Scope};
use super::super::view;
use super::*;

pub(in crate::admin) async fn list(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    let keys = blocking(stage, |keys| Ok(keys.list())).await?;
    Ok(Json(view::Keys { keys }).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBody {
    name: String,
    role: Option<Role>,
    scopes: Option<Vec<Scope>>,
}

pub(in crate::admin) async fn add(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let NewBody { name, role, scopes } = json(&body, r#"{"name": "NAME", "role": "viewer", "scopes": ["read"]}"#)?;
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(invalid("name: expected 1 to 64 bytes without control characters"));
    }
    let role = role.unwrap_or(Role::Viewer);
    let scopes = scopes.unwrap_or_else(|| role.usual_scopes().to_vec());
    if scopes.is_empty() {
        return Err(invalid("scopes: a key without any would be for nothing"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let made = blocking(stage, move |keys| keys.add(&name, role, &scopes, now)).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

pub(in crate::admin) async fn remove(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let id = step(path, "id")?;
    let wanted = id.clone();
    if !blocking(stage, move |keys| keys.remove(&wanted)).await? {
        return Err(Trouble::new(404, "no_such_key", format!("there is no API key of the id {id:?}"))
            .hint("`holdfast key list` has them all"));
    }
    Ok(done())
}

async fn blocking<T: Send + 'static>(
    stage: Arc<Stage>,
    work: impl FnOnce(&Keys) -> io::Result<T> + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(move || work(&stage.keys)).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|error| Trouble::new(500, "keys", format!("the API keys cannot be changed: {error}")))
}
