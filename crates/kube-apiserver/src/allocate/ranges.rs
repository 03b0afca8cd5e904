//! The ranges that Services get their addresses from: the one this server was started with, and those of ServiceCIDRs.

use ipnet::IpNet;
use serde_json::Value;

use crate::app::App;

/// Those that addresses may be taken from now, the server's own first.
pub(super) fn that_give(app: &App) -> Vec<IpNet> {
    choose(app.settings.service_cidr, app.views.all("servicecidrs", "").iter().map(AsRef::as_ref))
}

/// One that is to go gives no more addresses, nor does one whose controller says that it is not ready. Where nobody has said
/// anything, it is as good as ready: the controller may be away.
fn choose<'a>(own: IpNet, objects: impl Iterator<Item = &'a Value>) -> Vec<IpNet> {
    let (mut ranges, mut own_goes) = (Vec::new(), false);
    for object in objects {
        let gives = object["metadata"]["deletionTimestamp"].is_null() && !is_unready(object);
        for text in object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let Ok(range) = text.parse::<IpNet>() else { continue };
            if range == own {
                own_goes |= !gives;
            } else if gives && range.addr().is_ipv4() == own.addr().is_ipv4() && !ranges.contains(&range) {
                ranges.push(range);
            }
        }
    }
    if !own_goes {
        ranges.insert(0, own);
    }
    ranges
}

fn is_unready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] != "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(cidr: &str, ready: Option<&str>, goes: bool) -> Value {
        let conditions: Vec<Value> = ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
        let mut object = json!({"metadata": {}, "spec": {"cidrs": [cidr]}, "status": {"conditions": conditions}});
        if goes {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        object
    }

    #[test]
    fn ranges_give_while_they_are_there_and_ready() {
        let own = "10.43.0.0/16";
        for (objects, expected) in [
            (vec![], vec![own]),
            (vec![range(own, Some("True"), false)], vec![own]),
            (vec![range("10.50.0.0/24", None, false)], vec![own, "10.50.0.0/24"]),
            (vec![range("10.50.0.0/24", Some("True"), false)], vec![own, "10.50.0.0/24"]),
            (vec![range("10.50.0.0/24", Some("False"), false)], vec![own]),
            (vec![range("10.50.0.0/24", Some("True"), true)], vec![own]),
            (vec![range("fd00::/112", Some("True"), false)], vec![own]),
            (vec![range(own, Some("True"), true), range("10.50.0.0/24", None, false)], vec!["10.50.0.0/24"]),
        ] {
            let chosen = choose(own.parse().unwrap(), objects.iter());
            let expected: Vec<IpNet> = expected.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(chosen, expected, "{objects:?}");
        }
    }
}
