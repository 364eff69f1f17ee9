//! The table of paths: one row for each thing that the port can be asked, with who may ask it.
//!
//! The router is made of these rows and so is the OpenAPI document (`openapi.rs`), so neither knows a path that the other does not. A new path is a row here and a
//! function under `routes/`.
//!
//! Two things are asked of a caller (`callers.rs`): a [`Role`], which says how far it may go, and a [`Scope`], which says what its key is for. Whoever reads needs `viewer`; who changes what
//! a restart or the client itself would undo needs `operator`; who changes accounts, keys or the members of the cluster needs `admin`.
//!
//! Test to read first: `tests::rows_are_whole`.

use std::sync::Arc;

use axum::routing::{self, MethodRouter};
use serde::{Deserialize, Serialize};

use super::Stage;
use super::routes::{about, access, clients, cluster, keys, messages, nodes, topics};

/// How far a caller may go; each may what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Viewer,
    Operator,
    Admin,
}

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Publish,
    Read,
    Manage,
    Metrics,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::Admin];

    pub fn name(self) -> &'static str {
        ["viewer", "operator", "admin"][self as usize]
    }

    /// What a key of this role is for when nothing else is said.
    pub fn usual_scopes(self) -> &'static [Scope] {
        match self {
            Role::Viewer => &[Scope::Read, Scope::Metrics],
            Role::Operator | Role::Admin => &Scope::ALL,
        }
    }
}

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Publish, Scope::Read, Scope::Manage, Scope::Metrics];

    pub fn name(self) -> &'static str {
        ["publish", "read", "manage", "metrics"][self as usize]
    }
}

/// The method of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// As OpenAPI writes it.
    pub fn name(self) -> &'static str {
        ["get", "post", "put", "delete"][self as usize]
    }
}

/// What a field of a query or a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
    /// Of texts.
    Texts,
    /// Of objects.
    Objects,
    Object,
    Any,
}

/// A field of a query or a body.
#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub needed: bool,
    pub what: &'static str,
}

/// A field that may be left out.
pub(super) const fn may(name: &'static str, kind: Kind, what: &'static str) -> Field {
    Field { name, kind, needed: false, what }
}

/// A field that must be there.
pub(super) const fn must(name: &'static str, kind: Kind, what: &'static str) -> Field {
    Field { name, kind, needed: true, what }
}

/// The fields by which every list is read.
pub(super) const PAGE: &[Field] =
    &[may("limit", Kind::Number, "So many and no more: 1 to 1000"), may("after", Kind::Text, "Begin behind this one")];

type Endpoint = fn() -> MethodRouter<Arc<Stage>>;

/// A row.
pub(super) struct Route {
    pub method: Method,
    pub path: &'static str,
    pub role: Role,
    pub scope: Scope,
    /// One line.
    pub what: &'static str,
    pub query: &'static [Field],
    /// `None`: nothing is expected.
    pub body: Option<&'static [Field]>,
    pub endpoint: Endpoint,
}

/// A question.
pub(super) const fn read(path: &'static str, what: &'static str, endpoint: Endpoint) -> Route {
    let (role, scope) = (Role::Viewer, Scope::Read);
    Route { method: Method::Get, path, role, scope, what, query: &[], body: None, endpoint }
}

/// A change, for operators if nothing else is said.
pub(super) const fn change(method: Method, path: &'static str, what: &'static str, endpoint: Endpoint) -> Route {
    let (role, scope) = (Role::Operator, Scope::Manage);
    Route { method, path, role, scope, what, query: &[], body: None, endpoint }
}

impl Route {
    const fn needs(mut self, role: Role, scope: Scope) -> Route {
        self.role = role;
        self.scope = scope;
        self
    }

    const fn query(mut self, fields: &'static [Field]) -> Route {
        self.query = fields;
        self
    }

    const fn body(mut self, fields: &'static [Field]) -> Route {
        self.body = Some(fields);
        self
    }

    /// Whether it is written into the audit log: whatever changes something, but for messages, which are traffic.
    pub fn is_audited(&self) -> bool {
        self.method != Method::Get && self.scope == Scope::Manage
    }
}

/// How clients are let go; what is not said is as configured under `[shutdown]`.
const DRAIN_TERMS: &[Field] = &[
    may("rate", Kind::Number, "Connections a second"),
    may("spread_ms", Kind::Number, "In which time all of them, where no rate is said"),
    may("grace_ms", Kind::Number, "How long the node is not ready and takes clients all the same"),
    may("redirect", Kind::Text, "Where clients of MQTT 5.0 are told to go (Server Reference)"),
    may("force", Kind::Flag, "Whether or not they come back elsewhere"),
];

const MESSAGE: &[Field] = &[
    must("topic", Kind::Text, "Its topic name"),
    may("payload", Kind::Any, "A text; with the encoding json any value; nothing for an empty one"),
    may("payload_encoding", Kind::Text, "text, base64 or json; text if nothing is said"),
    may("qos", Kind::Number, "0, 1 or 2; 0 if nothing is said"),
    may("retain", Kind::Flag, "Whether it becomes the retained message of its topic"),
    may("expiry_secs", Kind::Number, "After which time nobody gets it any more"),
];

const REBALANCE: &[Field] = &[
    may("weights", Kind::Object, "The weight of nodes by name, from 0 to 1000; 1 for those that are not in it"),
    may("terms", Kind::Object, "How clients are let go, as for a drain"),
];

/// All that can be asked, but for health, which anybody may ask.
pub(super) const TABLE: &[Route] = &[
    read("/metrics", "Everything that is counted, in the text format of Prometheus", || routing::get(about::scrape))
        .needs(Role::Viewer, Scope::Metrics),
    read("/api/v1/openapi.json", "This document", || routing::get(about::openapi)),
    read("/api/v1/audit", "Changes that were asked for, the newest first", || routing::get(about::audit)).query(&[
        may("limit", Kind::Number, "So many and no more: 1 to 1000"),
        may("after", Kind::Number, "Only those older than the one of this number"),
    ]),
    read("/api/v1/clients", "The clients of all nodes, in the order of their ids", || routing::get(clients::list))
        .query(PAGE),
    read("/api/v1/connections", "Connections of all nodes that have ended, the latest first", || {
        routing::get(clients::closed)
    })
    .query(&[
        must("state", Kind::Text, "closed"),
        may("client", Kind::Text, "Only those of this client id"),
        may("limit", Kind::Number, "So many and no more: 1 to 1000"),
        may("after", Kind::Text, "Begin behind this one: `next` of the page before"),
    ]),
    read("/api/v1/topics/match", "Who would receive a message of a topic, on which node and by which filter", || {
        routing::get(topics::matches)
    })
    .query(&[must("topic", Kind::Text, "A topic name, without wildcards")]),
    read("/api/v1/clients/{id}", "One client and its subscriptions, wherever it is", || routing::get(clients::show)),
    change(Method::Post, "/api/v1/clients/{id}/kick", "Close the connection of a client", || {
        routing::post(clients::kick)
    }),
    read("/api/v1/bans", "Whom the nodes do not let in", || routing::get(access::bans)),
    change(Method::Post, "/api/v1/bans", "Let somebody in no more, on any node, and close its connections", || {
        routing::post(access::ban)
    })
    .body(&[
        must("by", Kind::Text, "client_id, user_name or address"),
        must("value", Kind::Text, "Whom; for addresses also a network such as 192.0.2.0/24"),
        may("until_ms", Kind::Number, "When it ends, in milliseconds since 1970; without it, never"),
        may("reason", Kind::Text, "Why: at most 256 bytes"),
    ]),
    change(Method::Delete, "/api/v1/bans/{by}/{value}", "Take a ban back", || routing::delete(access::unban)),
    read("/api/v1/acl/test", "Whether a client may do something, and the rule that decides", || {
        routing::get(access::acl_test)
    })
    .query(&[
        must("action", Kind::Text, "publish, subscribe or read"),
        must("topic", Kind::Text, "A topic name; a filter for subscribe"),
        may("client_id", Kind::Text, "Its client id"),
        may("user_name", Kind::Text, "Its user name; without it, it is anonymous"),
        may("listener", Kind::Text, "The listener that it comes through"),
        may("remote", Kind::Flag, "It comes from another machine"),
    ]),
    read("/api/v1/cluster/status", "The cluster as this node sees it", || routing::get(cluster::status)),
    change(Method::Post, "/api/v1/cluster/join", "Join the cluster of the node at an address", || {
        routing::post(cluster::join)
    })
    .needs(Role::Admin, Scope::Manage)
    .body(&[must("address", Kind::Text, "HOST:PORT, the cluster address of a node")]),
    change(Method::Post, "/api/v1/cluster/leave", "Take this node out of its cluster for good", || {
        routing::post(cluster::leave)
    })
    .needs(Role::Admin, Scope::Manage)
    .body(&[may("force", Kind::Flag, "Wait for no copies of sessions")]),
    change(
        Method::Post,
        "/api/v1/cluster/force-leave",
        "Take a node that will not come back out of the cluster",
        || routing::post(cluster::force_leave),
    )
    .needs(Role::Admin, Scope::Manage)
    .body(&[must("node", Kind::Text, "Its name or id")]),
    change(Method::Post, "/api/v1/cluster/transfer-leader", "Have another voter lead if this node does", || {
        routing::post(nodes::transfer_leader)
    }),
    read("/api/v1/nodes", "All nodes, and how much each has to do", || routing::get(nodes::list)),
    read("/api/v1/nodes/{name}", "One node; the one that is asked is also called local", || routing::get(nodes::show)),
    change(Method::Post, "/api/v1/nodes/{name}/drain", "Empty a node, or tell how far that is", || {
        routing::post(nodes::drain)
    })
    .body(DRAIN_TERMS),
    change(Method::Post, "/api/v1/nodes/{name}/undrain", "Have a node take clients again", || {
        routing::post(nodes::undrain)
    }),
    change(Method::Post, "/api/v1/cluster/rebalance/plan", "How many clients each node would let go", || {
        routing::post(nodes::plan)
    })
    .body(REBALANCE),
    change(Method::Post, "/api/v1/cluster/rebalance/start", "Let clients go to nodes that have fewer", || {
        routing::post(nodes::start)
    })
    .body(REBALANCE),
    change(Method::Post, "/api/v1/cluster/rebalance/stop", "Let no more clients go", || routing::post(nodes::stop)),
    read("/api/v1/retained", "Retained messages that match a filter, in the order of their topics", || {
        routing::get(messages::retained)
    })
    .query(&[
        may("filter", Kind::Text, "A topic filter; # if nothing is said"),
        may("limit", Kind::Number, "So many and no more: 1 to 1000"),
        may("after", Kind::Text, "Begin behind this topic"),
        may("values", Kind::Flag, "With their payloads"),
    ]),
    read("/api/v1/retained/{topic}", "The retained message of a topic", || routing::get(messages::retained_of)),
    change(Method::Post, "/api/v1/retained/remove", "Remove the retained messages that match a filter", || {
        routing::post(messages::remove)
    })
    .body(&[must("filter", Kind::Text, "A topic filter"), may("dry_run", Kind::Flag, "Count them, and remove none")]),
    change(
        Method::Post,
        "/api/v1/publish",
        "Publish a message: 200 if somebody subscribes or it is retained, else 202",
        || routing::post(messages::publish),
    )
    .needs(Role::Viewer, Scope::Publish)
    .body(MESSAGE),
    change(Method::Post, "/api/v1/publish/batch", "Publish messages, or none if one is wrong", || {
        routing::post(messages::batch)
    })
    .needs(Role::Viewer, Scope::Publish)
    .body(&[must("messages", Kind::Objects, "At most 1000, each as for one")]),
    read("/api/v1/keys", "The API keys of this node, without their secrets", || routing::get(keys::list))
        .needs(Role::Admin, Scope::Manage),
    change(Method::Post, "/api/v1/keys", "Make an API key; its text is in the answer, and nowhere else", || {
        routing::post(keys::add)
    })
    .needs(Role::Admin, Scope::Manage)
    .body(&[
        must("name", Kind::Text, "What people call it: 1 to 64 bytes"),
        may("role", Kind::Text, "viewer, operator or admin; viewer if nothing is said"),
        may("scopes", Kind::Texts, "Of publish, read, manage and metrics; those usual for the role if nothing is said"),
    ]),
    change(Method::Delete, "/api/v1/keys/{id}", "Remove an API key: nobody gets in by it from now on", || {
        routing::delete(keys::remove)
    })
    .needs(Role::Admin, Scope::Manage),
];

/// The names in braces of a path, in order.
pub(super) fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn rows_are_whole() {
        let mut seen = HashSet::new();
        for route in TABLE {
            let Route { method, path, what, .. } = route;
            assert!(seen.insert((method.name(), *path)), "{path} is there twice");
            assert!(path.starts_with("/api/v1/") || *path == "/metrics", "{path}");
            assert!(!what.is_empty() && !what.ends_with('.'), "{path}: {what}");
            assert!(!route.body.is_some_and(|_| *method == Method::Get), "{path}: a question has no body");
            if *method != Method::Get {
                assert_ne!(route.scope, Scope::Read, "{path} changes something");
                assert!(route.scope == Scope::Publish || route.role >= Role::Operator, "{path}");
                assert!(route.scope == Scope::Publish || route.is_audited(), "{path}");
            }
        }
    }

    #[test]
    fn roles_grow_and_a_viewer_changes_nothing() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
        let of_viewers = Role::Viewer.usual_scopes();
        assert!(!of_viewers.contains(&Scope::Manage) && !of_viewers.contains(&Scope::Publish));
        for role in Role::ALL {
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("{:?}", role.name()));
        }
        for scope in Scope::ALL {
            assert_eq!(serde_json::to_string(&scope).unwrap(), format!("{:?}", scope.name()));
        }
    }

    #[test]
    fn parameters_are_the_steps_in_braces() {
        assert_eq!(parameters("/a/{id}/b/{filter}").collect::<Vec<_>>(), ["id", "filter"]);
        assert_eq!(parameters("/a/b").count(), 0);
    }
}
