//! How the server reaches a webhook: a URL or a Service. Admission, conversion and aggregation share these rules.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

use crate::check;

const FORM: &str = "; desired format: https://host[/path]";

/// A `clientConfig` that must have exactly one of URL and Service.
pub(crate) fn client_config(config: &Node, errors: &mut Errors) {
    match (config.has("url"), config.has("service")) {
        (true, false) => url(&config.at("url"), errors),
        (false, true) => service(&config.at("service"), errors),
        _ => errors.required(config, "exactly one of url or service is required"),
    }
}

fn url(at: &Node, errors: &mut Errors) {
    let text = at.str();
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => ("", text),
    };
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    // Without a scheme there is no authority: all of it is a path.
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or("") };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !scheme.eq_ignore_ascii_case("https") {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid_value(&at.path, &scheme.to_ascii_lowercase().into(), detail);
    }
    if host.is_empty() {
        errors.invalid_value(&at.path, &"".into(), format!("host must be specified{FORM}"));
    }
    for (part, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.invalid_value(&at.path, &part.into(), detail);
        }
    }
}

fn service(service: &Node, errors: &mut Errors) {
    check::required(&service.at("name"), "service name is required", errors);
    check::required(&service.at("namespace"), "service namespace is required", errors);
    let port = service.at("port");
    for problem in names::port_number(port.int().unwrap_or(0)) {
        let number = port.int().unwrap_or(0).into();
        errors.invalid_value(&port.path, &number, format!("port is not valid: {problem}"));
    }
    if service.has("path") {
        path(&service.at("path"), errors);
    }
}

fn path(at: &Node, errors: &mut Errors) {
    let text = at.str();
    // An empty path is none, which is `/`.
    if matches!(text, "" | "/") {
        return;
    }
    if !text.starts_with('/') {
        errors.invalid(at, "must start with a '/'");
    }
    // Upstream drops the first byte whatever it is, and goes on.
    let steps = text.split_at_checked(1).map_or("", |(_, rest)| rest);
    for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(at, format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::dns_subdomain(step) {
            errors.invalid(at, format!("segment[{index}]: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_may_have_a_path() {
        let check = |path: &str, expected: &[&str]| {
            let config = json!({"service": {"namespace": "n", "name": "s", "port": 443, "path": path}});
            let mut errors = Errors::default();
            client_config(&Node::root(&config), &mut errors);
            let found: Vec<String> = errors.0.iter().map(|error| error.message()).collect();
            assert_eq!(found, expected, "{path}");
        };
        check("", &[]);
        check("/", &[]);
        check("/mutate/", &[]);
        check("//", &["Invalid value: \"//\": segment[0] may not be empty"]);
        check("mutate", &["Invalid value: \"mutate\": must start with a '/'"]);
        check(
            "a//b",
            &[
                "Invalid value: \"a//b\": must start with a '/'",
                "Invalid value: \"a//b\": segment[0] may not be empty",
                "Invalid value: \"a//b\": segment[1] may not be empty",
            ],
        );
    }
}
