//! Topics: who would receive a message.

use serde::Deserialize;

use super::*;
use crate::topic::name;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct MatchQuery {
    topic: String,
}

pub(in crate::admin) async fn matches(
    State(stage): State<Arc<Stage>>,
    asked: Result<Query<MatchQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let MatchQuery { topic } = query(asked)?;
    if name::validate(&topic).is_err() {
        return Err(invalid("topic: must be a topic name: 1 to 65535 bytes, and no + or #"));
    }
    Ok(Json(started(&stage)?.topic_match(topic.into()).await?).into_response())
}
