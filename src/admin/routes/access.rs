//! Who is let in and what it may do then: bans, and what the rules say.

use holdfast_raft::Command;
use serde::Deserialize;

use super::super::view;
use super::*;
use crate::access::acl::{Action, Decision, Subject};
use crate::access::bans::{BanKind, WrittenBan, now_ms, target};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BanBody {
    by: BanKind,
    value: String,
    until_ms: Option<u64>,
    #[serde(default)]
    reason: String,
}

pub(in crate::admin) async fn bans(State(stage): State<Arc<Stage>>) -> Result<Response, Trouble> {
    let bans = started(&stage)?.bans().iter().map(WrittenBan::from).collect();
    Ok(Json(view::Bans { bans }).into_response())
}

pub(in crate::admin) async fn ban(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let source = started(&stage)?;
    let expected =
        r#"{"by": "client_id|user_name|address", "value": "WHOM", "until_ms": 1800000000000, "reason": "WHY"}"#;
    let BanBody { by, value, until_ms, reason } = json(&body, expected)?;
    let written = WrittenBan { by, value, since_ms: now_ms(), until_ms, reason };
    let ban = written.read().map_err(|error| invalid(&error))?;
    if until_ms.is_some_and(|until| until <= written.since_ms) {
        return Err(invalid("until_ms: the ban would have ended already"));
    }
    let made = WrittenBan::from(&ban);
    source.change_bans(Command::Ban { ban }).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

pub(in crate::admin) async fn unban(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, Trouble> {
    let Path((by, value)) = path.map_err(|error| invalid(&error.body_text()))?;
    let kind = BanKind::ALL.into_iter().find(|kind| kind.name() == by);
    let kind = kind.ok_or_else(|| invalid("a ban is by client_id, user_name or address"))?;
    let target = target(kind, &value).map_err(|error| invalid(&error))?;
    started(&stage)?.change_bans(Command::Unban { target }).await?;
    Ok(done())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct TestQuery {
    action: String,
    topic: String,
    #[serde(default)]
    client_id: String,
    user_name: Option<String>,
    #[serde(default)]
    listener: String,
    remote: Option<bool>,
}

pub(in crate::admin) async fn acl_test(
    State(stage): State<Arc<Stage>>,
    asked: Result<Query<TestQuery>, QueryRejection>,
) -> Result<Json<Decision>, Trouble> {
    let TestQuery { action, topic, client_id, user_name, listener, remote } = query(asked)?;
    let action = Action::ALL.into_iter().find(|known| known.label() == action);
    let action = action.ok_or_else(|| invalid("action: expected publish, subscribe or read"))?;
    let subject = Subject {
        client_id: client_id.into(),
        user_name: user_name.map(Into::into),
        listener: listener.into(),
        is_local: !remote.unwrap_or(false),
        ..Subject::default()
    };
    Ok(Json(started(&stage)?.explain(subject, action, &topic)))
}
