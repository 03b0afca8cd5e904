//! Whether an APIService can be served: what its Service and EndpointSlices say, in upstream's words. Pure.

use serde_json::{Value, json};

/// The condition `Available`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    pub available: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Availability {
    fn no(reason: &'static str, message: String) -> Availability {
        Availability { available: false, reason, message }
    }

    pub fn local() -> Availability {
        Availability { available: true, reason: "Local", message: "Local APIServices are always available".into() }
    }

    pub fn passed() -> Availability {
        Availability { available: true, reason: "Passed", message: "all checks passed".into() }
    }

    /// It was asked what it serves, and did not say.
    pub fn silent(url: &str, why: &str) -> Availability {
        Availability::no("FailedDiscoveryCheck", format!("failing or missing response from {url}: {why}"))
    }
}

/// The Service that an APIService names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub namespace: String,
    pub name: String,
    pub port: u16,
}

impl Reference {
    pub fn of(api_service: &Value) -> Option<Reference> {
        Reference::of_service(&api_service["spec"]["service"])
    }

    /// From a reference to a Service, as APIServices and webhooks have it.
    pub fn of_service(service: &Value) -> Option<Reference> {
        let service = service.as_object()?;
        let text = |field: &str| service.get(field).and_then(Value::as_str).unwrap_or("").to_string();
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        Some(Reference { namespace: text("namespace"), name: text("name"), port: port.unwrap_or(443) })
    }
}

/// Where a Service can be reached, or why it cannot. `slices` are those of the Service.
pub fn places(
    wanted: &Reference,
    service: Option<&Value>,
    slices: &[Value],
) -> Result<Vec<(String, u16)>, Availability> {
    let shown = format!("service/{} in {:?}", wanted.name, wanted.namespace);
    let Some(service) = service else {
        return Err(Availability::no("ServiceNotFound", format!("{shown} is not present")));
    };
    if service["spec"]["type"] == "ExternalName" {
        let name = service["spec"]["externalName"].as_str().unwrap_or("");
        return Ok(vec![(name.to_string(), wanted.port)]);
    }
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(port) = ports.find(|port| port["port"].as_u64() == Some(wanted.port.into())) else {
        return Err(Availability::no("ServicePortError", format!("{shown} is not listening on port {}", wanted.port)));
    };
    if slices.is_empty() {
        return Err(Availability::no("EndpointsNotFound", format!("cannot find endpointslices for {shown}")));
    }
    let port_name = port["name"].as_str().unwrap_or("");
    let places: Vec<(String, u16)> = slices.iter().flat_map(|slice| ready(slice, port_name)).collect();
    if places.is_empty() {
        let message = format!("endpointslices for {shown} have no addresses with port name {port_name:?}");
        return Err(Availability::no("MissingEndpoints", message));
    }
    Ok(places)
}

fn ready<'a>(slice: &'a Value, port_name: &str) -> impl Iterator<Item = (String, u16)> + use<'a> {
    let mut ports = slice["ports"].as_array().into_iter().flatten();
    let port = ports.find(|port| port["name"].as_str().unwrap_or("") == port_name);
    let port = port.and_then(|port| port["port"].as_u64()).and_then(|port| u16::try_from(port).ok());
    // Not said means ready.
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let endpoints = endpoints.filter(|one| one["conditions"]["ready"].as_bool() != Some(false));
    endpoints.filter_map(move |one| Some((one["addresses"][0].as_str()?.to_string(), port?)))
}

/// The status with that condition; None where it says so already.
pub fn status(current: &Value, found: &Availability, now: &str) -> Option<Value> {
    let mut status = if current["status"].is_object() { current["status"].clone() } else { json!({}) };
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let before = conditions.iter().position(|condition| condition["type"] == "Available");
    let word = if found.available { "True" } else { "False" };
    let mut condition = json!({
        "type": "Available", "status": word, "lastTransitionTime": now, "reason": found.reason, "message": found.message,
    });
    match before {
        Some(at) => {
            if conditions[at]["status"] == word {
                condition["lastTransitionTime"] = conditions[at]["lastTransitionTime"].clone();
            }
            if conditions[at] == condition {
                return None;
            }
            conditions[at] = condition;
        }
        None => conditions.push(condition),
    }
    status["conditions"] = conditions.into();
    Some(status)
}
