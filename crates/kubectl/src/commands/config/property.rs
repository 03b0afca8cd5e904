//! `kubectl config set` and `unset`: one value by its path.

use base64::Engine;
use serde_json::{Map, Value};

use super::{change, file_with, file_with_current, one, unexpected};
use crate::config;
use crate::failure::{Failure, Result};
use crate::session::Session;
use crate::terminal;

pub(crate) async fn set(session: &Session) -> Result<()> {
    let [property, value] = session.arguments() else { return unexpected(session) };
    check_property(property)?;
    if property.ends_with(".insecure-skip-tls-verify") && !["true", "false"].contains(&value.as_str()) {
        return Err(Failure::message(format!("strconv.ParseBool: parsing {value:?}: invalid syntax")));
    }
    let merged = config::merged(&session.flags)?;
    let steps = steps(&merged, property)?;
    let value: Value = match value.as_str() {
        value if session.flags.on("set-raw-bytes") => base64::engine::general_purpose::STANDARD.encode(value).into(),
        "true" => true.into(),
        "false" => false.into(),
        value => value.into(),
    };
    match &steps[..] {
        [list, name, fields @ ..]
            if ["clusters", "contexts", "users"].contains(&list.as_str()) && !fields.is_empty() =>
        {
            change(session, list, inner_key(list), name, |entry| {
                let mut place = entry;
                for field in fields {
                    place = &mut place[field.as_str()];
                }
                *place = value;
                Ok(())
            })?;
        }
        [key] if key == "current-context" => {
            let (file, mut config) = file_with_current(session)?;
            config["current-context"] = value;
            config::write(&file, &config)?;
        }
        _ => return Err(Failure::message(format!("unable to set {property}"))),
    }
    terminal::outln(&format!("Property {property:?} set."));
    Ok(())
}

pub(crate) async fn unset(session: &Session) -> Result<()> {
    let property = one(session)?;
    check_property(property)?;
    let merged = config::merged(&session.flags)?;
    let steps = steps(&merged, property)?;
    match &steps[..] {
        [list, name] if ["clusters", "contexts", "users"].contains(&list.as_str()) => {
            let (file, mut config) = file_with(session, list, name)?;
            let mut entries = super::list(&config, list);
            entries.retain(|entry| entry["name"] != name.as_str());
            config[list.as_str()] = entries.into();
            config::write(&file, &config)?;
        }
        [list, name, fields @ .., last] if ["clusters", "contexts", "users"].contains(&list.as_str()) => {
            if config::named(&merged, list, name).is_none() {
                return Err(Failure::message(format!("current map key `{name}` is invalid")));
            }
            change(session, list, inner_key(list), name, |entry| {
                let mut place = entry;
                for field in fields {
                    place = &mut place[field.as_str()];
                }
                place.as_object_mut().map(|map: &mut Map<String, Value>| map.remove(last));
                Ok(())
            })?;
        }
        [key] => {
            let (file, mut config) = file_with_current(session)?;
            config[key.as_str()] = if key == "current-context" { "".into() } else { Value::Null };
            config::write(&file, &config)?;
        }
        _ => return Err(Failure::message(format!("unable to unset {property}"))),
    }
    terminal::outln(&format!("Property {property:?} unset."));
    Ok(())
}

/// `users.me.token`: the list's name, the entry's name, then fields. Names may hold dots, so the longest known one wins.
fn steps(config: &Value, property: &str) -> Result<Vec<String>> {
    let parts: Vec<&str> = property.split('.').collect();
    let Some(key) = parts.first().filter(|key| ["clusters", "contexts", "users"].contains(key)) else {
        return Ok(parts.iter().map(|part| part.to_string()).collect());
    };
    if parts.len() < 2 {
        return Err(Failure::message(format!("unable to parse {property} with value: entry name missing")));
    }
    for count in (2..=parts.len()).rev() {
        let name = parts[1..count].join(".");
        if config::named(config, key, &name).is_some() || count == 2 {
            let mut found = vec![key.to_string(), name];
            found.extend(parts[count..].iter().map(|part| part.to_string()));
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

fn check_property(property: &str) -> Result<()> {
    let known = ["clusters", "contexts", "users", "current-context", "preferences"];
    match property.split('.').next() {
        Some(first) if known.contains(&first) => Ok(()),
        _ => Err(Failure::message(format!("unable to parse {property} after [] at api.Config"))),
    }
}

fn inner_key(list: &str) -> &'static str {
    match list {
        "clusters" => "cluster",
        "contexts" => "context",
        _ => "user",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_may_hold_dots() {
        let config = json!({"clusters": [{"name": "a.b"}], "users": []});
        let found = |property: &str| steps(&config, property).unwrap().join(" ");
        assert_eq!(found("clusters.a.b.server"), "clusters a.b server");
        assert_eq!(found("users.me.token"), "users me token");
        assert_eq!(found("current-context"), "current-context");
        assert!(steps(&config, "clusters").is_err());
    }

    #[test]
    fn only_known_properties_are_set() {
        assert!(check_property("users.me.token").is_ok() && check_property("current-context").is_ok());
        let refused = check_property("nothing.at.all").unwrap_err().text();
        assert_eq!(refused, "unable to parse nothing.at.all after [] at api.Config");
        assert_eq!((inner_key("clusters"), inner_key("contexts"), inner_key("users")), ("cluster", "context", "user"));
    }
}
