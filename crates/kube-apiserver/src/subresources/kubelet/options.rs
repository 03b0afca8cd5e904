//! Options of logs and streams: read from the query, checked, and written in the kubelet's words.

use std::fmt::Write;

use form_urlencoded::Serializer;
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Value, json};

use crate::call::Call;
use crate::query::Query;

/// The kubelet's query for a log, beginning with `?` unless it is empty.
pub fn log(query: &Query, pod: &str) -> Result<String, Status> {
    let mut errors = Errors::default();
    let mut refuse = |problem, field: &str, value: String, detail: &str| {
        errors.push(FieldError::new(problem, field, value, detail));
    };
    let tail = query.number("tailLines")?;
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        refuse(Problem::Invalid, "tailLines", lines.to_string(), "must be greater than or equal to 0");
    }
    let limit = query.number("limitBytes")?;
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        refuse(Problem::Invalid, "limitBytes", bytes.to_string(), "must be greater than 0");
    }
    let seconds = query.number("sinceSeconds")?;
    let time = match query.get("sinceTime") {
        "" => None,
        text => Some(text.parse::<jiff::Timestamp>().map_err(|_| {
            Status::bad_request(format!("parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse"))
        })?),
    };
    match (seconds, time) {
        (Some(_), Some(_)) => {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            refuse(Problem::Forbidden, "", String::new(), detail);
        }
        (Some(seconds), None) if seconds < 1 => {
            refuse(Problem::Invalid, "sinceSeconds", seconds.to_string(), "must be greater than 0");
        }
        _ => {}
    }
    let stream = query.get("stream");
    if !matches!(stream, "" | "All" | "Stdout" | "Stderr") {
        let detail = "supported values: \"All\", \"Stderr\", \"Stdout\"";
        refuse(Problem::NotSupported, "stream", format!("{stream:?}"), detail);
    } else if matches!(stream, "Stdout" | "Stderr") && tail.is_some() {
        let detail = "`tailLines` and specific `stream` are mutually exclusive for now";
        refuse(Problem::Forbidden, "", String::new(), detail);
    }
    if !errors.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", pod, &errors));
    }
    let mut out = Serializer::new(String::new());
    for flag in ["follow", "previous", "timestamps"] {
        if query.flag(flag) {
            out.append_pair(flag, "true");
        }
    }
    for (name, number) in [("sinceSeconds", seconds), ("tailLines", tail), ("limitBytes", limit)] {
        if let Some(number) = number {
            out.append_pair(name, &number.to_string());
        }
    }
    if let Some(time) = time {
        out.append_pair("sinceTime", &time.to_string());
    }
    if !stream.is_empty() && stream != "All" {
        out.append_pair("stream", stream);
    }
    Ok(with_mark(out.finish()))
}

/// What is asked of a connection, as an object of upstream's kinds: for those who are asked whether it may be.
pub fn asked(call: &Call) -> Value {
    let (query, subresource) = (&call.query, call.target.subresource.as_str());
    let kind = match subresource {
        "exec" => "PodExecOptions".to_string(),
        "attach" => "PodAttachOptions".to_string(),
        "portforward" => "PodPortForwardOptions".to_string(),
        _ => format!("{}ProxyOptions", call.resource.kind.kind),
    };
    let mut out = json!({"kind": kind, "apiVersion": "v1"});
    match subresource {
        "exec" | "attach" => {
            for flag in ["stdin", "stdout", "stderr", "tty"] {
                if query.flag(flag) {
                    out[flag] = true.into();
                }
            }
            if !query.get("container").is_empty() {
                out["container"] = query.get("container").into();
            }
            if subresource == "exec" {
                out["command"] = query.all("command").into();
            }
        }
        "portforward" => {
            let ports: Vec<u64> = query.all("ports").iter().filter_map(|port| port.parse().ok()).collect();
            if !ports.is_empty() {
                out["ports"] = ports.into();
            }
        }
        _ => {
            if !call.target.rest.is_empty() {
                out["path"] = call.target.rest.as_str().into();
            }
        }
    }
    out
}

/// The kubelet's query for exec and attach.
pub fn streams(query: &Query, with_command: bool) -> String {
    let mut out = Serializer::new(String::new());
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if query.flag(ours) {
            out.append_pair(theirs, "1");
        }
    }
    if with_command {
        query.all("command").iter().for_each(|word| {
            out.append_pair("command", word);
        });
    }
    with_mark(out.finish())
}

/// The kubelet's query for a port-forward.
pub fn ports(query: &Query) -> Result<String, Status> {
    let ports: Vec<&str> = query.all("ports").into_iter().filter(|port| !port.is_empty()).collect();
    if let Some(bad) = ports.iter().flat_map(|ports| ports.split(',')).find(|port| port.parse::<u16>().is_err()) {
        return Err(Status::bad_request(format!("strconv.ParseInt: parsing \"{bad}\": invalid syntax")));
    }
    let mut out = Serializer::new(String::new());
    if !ports.is_empty() {
        out.append_pair("port", &ports.join(","));
    }
    Ok(with_mark(out.finish()))
}

fn with_mark(query: String) -> String {
    if query.is_empty() { query } else { format!("?{query}") }
}

/// The container that is meant: the named one, or the only one.
pub fn container(pod: &Value, wanted: &str) -> Result<String, Status> {
    let names = |list: &str| -> Vec<&str> {
        let containers = pod.pointer(list).and_then(Value::as_array);
        containers.into_iter().flatten().filter_map(|container| container["name"].as_str()).collect()
    };
    let (main, init) = (names("/spec/containers"), names("/spec/initContainers"));
    let ephemeral = names("/spec/ephemeralContainers");
    let pod = pod.name();
    if !wanted.is_empty() {
        return if [&main, &init, &ephemeral].into_iter().flatten().any(|name| *name == wanted) {
            Ok(wanted.to_string())
        } else {
            Err(Status::bad_request(format!("container {wanted} is not valid for pod {pod}")))
        };
    }
    match main.as_slice() {
        [one] => Ok(one.to_string()),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {pod}"))),
        _ => {
            let mut text =
                format!("a container name must be specified for pod {pod}, choose one of: [{}]", main.join(" "));
            for (kind, names) in [("init", init), ("ephemeral", ephemeral)] {
                if !names.is_empty() {
                    write!(text, " or one of the {kind} containers: [{}]", names.join(" ")).expect("text grows");
                }
            }
            Err(Status::bad_request(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_options_are_checked_and_passed_on() {
        let check = |query: &str, expected: Result<&str, &str>| {
            let found = log(&Query::parse(Some(query)), "p").map_err(|status| status.message);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{query}");
        };
        check("", Ok(""));
        check("container=c&follow=true&previous=false&tailLines=5", Ok("?follow=true&tailLines=5"));
        check("sinceTime=2026-01-02T03:04:05Z", Ok("?sinceTime=2026-01-02T03%3A04%3A05Z"));
        check("stream=Stderr&limitBytes=7", Ok("?limitBytes=7&stream=Stderr"));
        let invalid =
            "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0";
        check("tailLines=-1", Err(invalid));
        check(
            "limitBytes=0",
            Err("PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0"),
        );
        check("tailLines=x", Err("strconv.ParseInt: parsing \"x\": invalid syntax"));
        assert!(log(&Query::parse(Some("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z")), "p").is_err());
        assert!(log(&Query::parse(Some("sinceSeconds=0")), "p").is_err());
        assert!(log(&Query::parse(Some("stream=Stdout&tailLines=1")), "p").is_err());
    }

    #[test]
    fn streams_are_named_in_the_kubelets_words() {
        let query = Query::parse(Some("stdin=true&stdout=true&stderr=false&tty=1&command=sh&command=-c&command=a+b"));
        assert_eq!(streams(&query, true), "?input=1&output=1&tty=1&command=sh&command=-c&command=a+b");
        assert_eq!(streams(&query, false), "?input=1&output=1&tty=1");
        assert_eq!(ports(&Query::parse(Some("ports=80&ports=81"))).unwrap(), "?port=80%2C81");
        assert!(ports(&Query::parse(Some("ports=x"))).is_err());
    }

    #[test]
    fn a_container_is_found_or_asked_for() {
        let check = |spec: Value, wanted: &str, expected: Result<&str, &str>| {
            let pod = json!({"metadata": {"name": "p"}, "spec": spec});
            let found = container(&pod, wanted).map_err(|status| status.message);
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        };
        let one = json!({"containers": [{"name": "a"}]});
        check(one.clone(), "", Ok("a"));
        check(one, "x", Err("container x is not valid for pod p"));
        let many = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]});
        check(many.clone(), "i", Ok("i"));
        let ask = "a container name must be specified for pod p, choose one of: [a b] \
                   or one of the init containers: [i]";
        check(many, "", Err(ask));
    }
}
