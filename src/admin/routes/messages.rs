//! Messages: what is retained, and what is published.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::super::view::PublishedAll;
use super::super::{PublishRequest, RetainedRequest};
use super::*;
use crate::mqtt::QoS;

/// Messages of one request.
const BATCH_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct RetainedQuery {
    filter: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
    values: Option<bool>,
}

pub(in crate::admin) async fn retained(
    State(stage): State<Arc<Stage>>,
    asked: Result<Query<RetainedQuery>, QueryRejection>,
) -> Result<Response, Trouble> {
    let RetainedQuery { filter, limit, after, values } = query(asked)?;
    let filter = filter.unwrap_or_else(|| "#".to_owned()).into();
    let asked = RetainedRequest {
        filter,
        limit: super::limit(limit)?,
        after: after.map(Arc::from),
        values: values.unwrap_or(false),
    };
    Ok(Json(started(&stage)?.retained(asked).await?).into_response())
}

pub(in crate::admin) async fn retained_of(
    State(stage): State<Arc<Stage>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let topic = step(path, "topic")?;
    let found = started(&stage)?.retained_of(&topic);
    found.map(|message| Json(message).into_response()).ok_or_else(|| {
        Trouble::new(404, "not_retained", format!("no message is retained of the topic {:?}", &*topic))
            .hint("`holdfast retained list FILTER` has those that are")
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveBody {
    filter: String,
    #[serde(default)]
    dry_run: bool,
}

pub(in crate::admin) async fn remove(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let RemoveBody { filter, dry_run } = json(&body, r#"{"filter": "a/#", "dry_run": true}"#)?;
    Ok(Json(started(&stage)?.remove_retained(filter.into(), dry_run).await?).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishBody {
    topic: String,
    #[serde(default)]
    payload: serde_json::Value,
    #[serde(default)]
    payload_encoding: Encoding,
    #[serde(default)]
    qos: u8,
    #[serde(default)]
    retain: bool,
    expiry_secs: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Text,
    Base64,
    Json,
}

const EXPECTED: &str = r#"{"topic": "a/b", "payload": "text", "qos": 1, "retain": false}"#;

impl PublishBody {
    fn request(self) -> Result<PublishRequest, Trouble> {
        let payload = match (self.payload_encoding, self.payload) {
            (Encoding::Json, value) => value.to_string().into_bytes(),
            (_, serde_json::Value::Null) => Vec::new(),
            (Encoding::Text, serde_json::Value::String(text)) => text.into_bytes(),
            (Encoding::Base64, serde_json::Value::String(text)) => {
                STANDARD.decode(text).map_err(|error| invalid(&format!("payload: it is no base64: {error}")))?
            }
            _ => return Err(invalid("payload: expected a text; other values need \"payload_encoding\": \"json\"")),
        };
        let qos = match self.qos {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            2 => QoS::ExactlyOnce,
            _ => return Err(invalid("qos: must be 0, 1 or 2")),
        };
        let (topic, retain, expiry_secs) = (self.topic, self.retain, self.expiry_secs);
        Ok(PublishRequest { topic, payload: payload.into(), qos, retain, expiry_secs })
    }
}

/// 200 when somebody subscribes to it, or it is retained; 202 when it was for nobody.
pub(in crate::admin) async fn publish(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let request = json::<PublishBody>(&body, EXPECTED)?.request()?;
    let retain = request.retain;
    let published = started(&stage)?.publish(vec![request]).await?.pop().unwrap_or_default();
    let status = if published.matched || retain { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(published)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    messages: Vec<PublishBody>,
}

pub(in crate::admin) async fn batch(State(stage): State<Arc<Stage>>, body: Bytes) -> Result<Response, Trouble> {
    let BatchBody { messages } = json(&body, r#"{"messages": [{"topic": "a/b", "payload": "text"}]}"#)?;
    if messages.len() > BATCH_MAX {
        return Err(invalid(&format!("messages: at most {BATCH_MAX}")));
    }
    let messages = messages.into_iter().map(PublishBody::request).collect::<Result<Vec<_>, _>>()?;
    let messages = started(&stage)?.publish(messages).await?;
    Ok(Json(PublishedAll { messages }).into_response())
}
