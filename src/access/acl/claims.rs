//! The rules in the claim `acl` of a token. [pure]
//!
//! Two forms. Ours says what is allowed, and nothing else is: `{"pub": ["a/#"], "sub": ["b/+"], "all": ["c"]}`. EMQX's is a list that is asked in its order:
//! `[{"permission": "allow", "action": "publish", "topic": "a/#"}]`, with `action` publish, subscribe or all; what no entry speaks of is left
//! to the ACL file. `sub` and `subscribe` are about being sent messages, too. Filters may hold the names of `super::names`.
//!
//! Invariant: fails closed. A claim that cannot be read allows nothing.

use std::sync::Arc;

use serde_json::Value;

use super::names;
use super::rules::{Action, Actions, EVERY_ACTION, Rule};
use crate::topic::TopicFilter;

/// Most rules of one token.
const RULES_MAX: usize = 1_000;

/// The rules of a claim, in their order. The error says what is wrong.
pub(super) fn read(claim: &str) -> Result<Vec<Rule>, String> {
    let value: Value = serde_json::from_str(claim).map_err(|error| error.to_string())?;
    let mut rules = Vec::new();
    match &value {
        Value::Object(lists) => {
            for (word, list) in lists {
                let actions = actions(word).ok_or_else(|| format!("expected pub, sub or all, found \"{word}\""))?;
                for filter in list.as_array().ok_or_else(|| format!("{word}: expected a list of topic filters"))? {
                    push(&mut rules, true, actions, filter)?;
                }
            }
            // What is not listed is denied, whatever a file says.
            for filter in ["#", "$SYS/#"] {
                push(&mut rules, false, EVERY_ACTION, &Value::from(filter))?;
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                let word = |key: &str| entry.get(key).and_then(Value::as_str);
                let allows = match word("permission") {
                    Some("allow") => true,
                    Some("deny") => false,
                    _ => return Err("permission: expected allow or deny".to_owned()),
                };
                let actions = word("action")
                    .map_or(Some(EVERY_ACTION), actions)
                    .ok_or("action: expected publish, subscribe or all")?;
                push(&mut rules, allows, actions, entry.get("topic").unwrap_or(&Value::Null))?;
            }
        }
        _ => return Err("expected an object or a list".to_owned()),
    }
    Ok(rules)
}

fn actions(word: &str) -> Option<Actions> {
    match word {
        "pub" | "publish" => Some(Action::Publish.bit()),
        "sub" | "subscribe" => Some(Action::Subscribe.bit() | Action::Read.bit()),
        "all" | "pubsub" => Some(EVERY_ACTION),
        _ => None,
    }
}

fn push(rules: &mut Vec<Rule>, allows: bool, actions: Actions, filter: &Value) -> Result<(), String> {
    let filter = filter.as_str().ok_or("a topic filter is missing")?;
    let parsed = TopicFilter::parse(filter).map_err(|error| format!("\"{filter}\": {error}"))?;
    names::check(filter, true)?;
    if parsed.share.is_some() {
        return Err(format!("\"{filter}\": write the filter without $share/NAME/"));
    }
    if rules.len() >= RULES_MAX {
        return Err(format!("more than {RULES_MAX} rules"));
    }
    let verb = if allows { "allow" } else { "deny" };
    let text: Arc<str> = format!("{verb} {filter}").into();
    rules.push(Rule { allows, actions, filter: filter.into(), text, line: rules.len() as u32 + 1 });
    Ok(())
}
