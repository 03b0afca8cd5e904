//! `kubectl auth reconcile`: roles and bindings get what files say they have, and lose the rest only where that is asked.

use serde_json::{Value, json};

use super::change::Change;
use crate::failure::{Failure, Result};
use crate::resource::Info;
use crate::resource::select::Query;
use crate::session::{Call, Session};
use crate::terminal;

const MANAGER: &str = "kubectl-auth-reconcile";

pub(crate) async fn run(session: &Session) -> Result<()> {
    let query = Query::from(session);
    if !query.has_files() {
        return Err(Failure::message("must specify one of -f and -k"));
    }
    let change = Change::from(session)?;
    let (infos, failures) = session.local(&query).await?;
    crate::failure::all(failures)?;
    // What is no role and no binding is left alone.
    for info in infos.iter().filter(|info| info.mapping.group == "rbac.authorization.k8s.io") {
        let list = if info.mapping.kind.ends_with("Binding") { "subjects" } else { "rules" };
        let reconciled = match session.send(&Call::get(info.path())).await {
            Err(failure) if failure.is_not_found() => {
                tell(list, "create", items(&info.object, list), Vec::new());
                created(&change, info).await?
            }
            Err(failure) => return Err(failure),
            // A binding to another role is another binding.
            Ok(live) if list == "subjects" && live["roleRef"] != info.object["roleRef"] => {
                tell(list, "recreate", Vec::new(), Vec::new());
                if !change.local() {
                    super::delete::and_wait(session, info).await?;
                }
                created(&change, info).await?
            }
            Ok(live) => updated(&change, info, live, list).await?,
        };
        change.report(&info.shown(), &reconciled, "reconciled")?;
    }
    Ok(())
}

async fn created(change: &Change<'_>, info: &Info) -> Result<Value> {
    if change.local() {
        return Ok(info.object.clone());
    }
    change.send(Call::post(info.collection(), &info.object), MANAGER).await
}

async fn updated(change: &Change<'_>, info: &Info, mut live: Value, list: &str) -> Result<Value> {
    let remove =
        change.session.flags.on(if list == "rules" { "remove-extra-permissions" } else { "remove-extra-subjects" });
    let (wanted, known) = (items(&info.object, list), items(&live, list));
    let missing = without(&wanted, &known, list);
    let extra = if remove { without(&known, &wanted, list) } else { Vec::new() };
    if missing.is_empty() && extra.is_empty() {
        return Ok(live);
    }
    live[list] = if remove { wanted.into() } else { [known, missing.clone()].concat().into() };
    tell(list, "update", missing, extra);
    if change.local() {
        return Ok(live);
    }
    change.send(Call::put(info.path(), &live), MANAGER).await
}

fn items(object: &Value, list: &str) -> Vec<Value> {
    object[list].as_array().cloned().unwrap_or_default()
}

/// What of the first list the second does not say, rules in their smallest pieces.
fn without(first: &[Value], second: &[Value], list: &str) -> Vec<Value> {
    if list == "subjects" {
        return first.iter().filter(|subject| !second.contains(subject)).cloned().collect();
    }
    let pieces = first.iter().flat_map(pieces);
    pieces.filter(|piece| !second.iter().any(|rule| covers(rule, piece))).collect()
}

/// One rule for each verb on each resource or path.
fn pieces(rule: &Value) -> Vec<Value> {
    let texts = |key: &str| rule[key].as_array().cloned().unwrap_or_default();
    let names = texts("resourceNames");
    let mut found = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                let mut piece = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
                if names.is_empty() {
                    found.push(piece);
                    continue;
                }
                for name in &names {
                    piece["resourceNames"] = json!([name]);
                    found.push(piece.clone());
                }
            }
        }
    }
    for path in texts("nonResourceURLs") {
        for verb in texts("verbs") {
            found.push(json!({"nonResourceURLs": [path], "verbs": [verb]}));
        }
    }
    found
}

/// Does a rule allow what one piece allows?
fn covers(rule: &Value, piece: &Value) -> bool {
    let has = |key: &str| {
        let known = rule[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let wanted = piece[key].as_array().map(Vec::as_slice).unwrap_or_default();
        match key {
            // No names at all are all names.
            "resourceNames" => {
                known.is_empty() || (!wanted.is_empty() && wanted.iter().all(|name| known.contains(name)))
            }
            _ => {
                known.iter().any(|item| item == "*") && !wanted.is_empty()
                    || wanted.iter().all(|item| known.contains(item))
            }
        }
    };
    ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"].iter().all(|key| has(key))
}

fn tell(list: &str, operation: &str, missing: Vec<Value>, extra: Vec<Value>) {
    terminal::errln(&format!("\treconciliation required {operation}"));
    for (what, items) in [(format!("missing {list} added"), missing), (format!("extra {list} removed"), extra)] {
        if items.is_empty() {
            continue;
        }
        terminal::errln(&format!("\t{what}:"));
        items.iter().for_each(|item| terminal::errln(&format!("\t\t{}", shown(item, list))));
    }
}

/// As Go's `%+v` shows it.
fn shown(item: &Value, list: &str) -> String {
    let text = |key: &str| item[key].as_str().unwrap_or_default().to_string();
    if list == "subjects" {
        return format!(
            "{{Kind:{} APIGroup:{} Name:{} Namespace:{}}}",
            text("kind"),
            text("apiGroup"),
            text("name"),
            text("namespace")
        );
    }
    let listed = |key: &str| {
        let texts: Vec<&str> = item[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        texts.join(" ")
    };
    format!(
        "{{Verbs:[{}] APIGroups:[{}] Resources:[{}] ResourceNames:[{}] NonResourceURLs:[{}]}}",
        listed("verbs"),
        listed("apiGroups"),
        listed("resources"),
        listed("resourceNames"),
        listed("nonResourceURLs")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_in_pieces() {
        let rule =
            |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
        let (known, wanted) = ([rule(&["pods"], &["get", "list"])], [rule(&["pods", "services"], &["get"])]);
        assert_eq!(without(&wanted, &known, "rules"), [rule(&["services"], &["get"])]);
        assert_eq!(without(&known, &wanted, "rules"), [rule(&["pods"], &["list"])]);
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        assert!(without(&wanted, &[all], "rules").is_empty());
    }
}
