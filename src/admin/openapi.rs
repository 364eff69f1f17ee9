//! The table of paths as an OpenAPI 3.1 document, for programs that make clients of it. Pure.

use serde_json::{Map, Value, json};

use super::table::{Field, Kind, Route, TABLE, parameters};

/// The document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in TABLE {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.name()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What a Holdfast node tells of itself and its cluster, and what it can be told to do.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "The token of the admin port, or an API key"}},
            "schemas": {"Refused": refused()},
            "responses": {"Refused": {
                "description": "It was not done",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refused"}}},
            }},
        },
    })
}

/// What every refusal says.
fn refused() -> Value {
    json!({
        "type": "object",
        "required": ["code", "message", "hint"],
        "properties": {
            "code": {"type": "string", "description": "A word for programs"},
            "message": {"type": "string"},
            "hint": {"type": "string", "description": "What to do about it; perhaps empty"},
        },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = parameters(route.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    let in_query = route.query.iter().map(|field| {
        json!({
            "name": field.name, "in": "query", "required": field.needed, "description": field.what, "schema": schema(field.kind),
        })
    });
    let answer = if route.path == "/metrics" { "text/plain" } else { "application/json" };
    let mut operation = json!({
        "summary": route.what,
        "operationId": operation_id(route),
        "parameters": in_path.chain(in_query).collect::<Vec<_>>(),
        "responses": {
            "2XX": {"description": "It is done, or this is the answer", "content": {answer: {}}},
            "default": {"$ref": "#/components/responses/Refused"},
        },
        "x-role": route.role.name(),
        "x-scope": route.scope.name(),
    });
    if let Some(fields) = route.body {
        let needed = fields.iter().any(|field| field.needed);
        operation["requestBody"] =
            json!({"required": needed, "content": {"application/json": {"schema": object(fields)}}});
    }
    operation
}

fn operation_id(route: &Route) -> String {
    let steps = route.path.trim_start_matches("/api/v1").split(['/', '-', '.']).filter(|step| !step.is_empty());
    let words = steps.map(|step| step.trim_matches(['{', '}']));
    std::iter::once(route.method.name()).chain(words).collect::<Vec<_>>().join("_")
}

fn object(fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut schema = schema(field.kind);
            schema["description"] = field.what.into();
            (field.name.to_owned(), schema)
        })
        .collect();
    let needed: Vec<_> = fields.iter().filter(|field| field.needed).map(|field| field.name).collect();
    json!({"type": "object", "properties": properties, "required": needed, "additionalProperties": false})
}

fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Number => json!({"type": "number"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Any => json!({}),
        Kind::Objects => json!({"type": "array", "items": {"type": "object"}}),
        Kind::Object => json!({"type": "object"}),
        Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_document_has_each_row_once_and_nothing_else() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let told: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(told, TABLE.len());
        let mut ids = HashSet::new();
        for route in TABLE {
            let operation = &paths[route.path][route.method.name()];
            assert_eq!(operation["summary"], route.what);
            assert_eq!(operation["x-role"], route.role.name());
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} is there twice");
            let named = operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "path");
            assert_eq!(named.count(), parameters(route.path).count(), "{id}");
            assert_eq!(operation.get("requestBody").is_some(), route.body.is_some(), "{id}");
        }
    }

    #[test]
    fn what_must_be_there_is_said_to_be_needed() {
        let document = document();
        let join = &document["paths"]["/api/v1/cluster/join"]["post"];
        assert_eq!(join["requestBody"]["required"], true);
        assert_eq!(join["requestBody"]["content"]["application/json"]["schema"]["required"], json!(["address"]));
        let leave = &document["paths"]["/api/v1/cluster/leave"]["post"];
        assert_eq!(leave["requestBody"]["required"], false);
    }
}
