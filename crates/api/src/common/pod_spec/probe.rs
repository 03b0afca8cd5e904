//! Probes and lifecycle hooks.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use super::text::{not_negative, port_number, port_number_or_name};

const SIGNALS_WINDOWS: &[&str] = &["SIGKILL", "SIGTERM"];

/// The probes and hooks of a container that may have them; `grace` is the pod's time to end.
pub(super) fn probes_and_hooks(errors: &mut Errors, container: &Node, grace: Option<i64>, os: &str) {
    let lifecycle = container.at("lifecycle");
    for hook in ["postStart", "preStop"] {
        if lifecycle.has(hook) {
            handler(errors, &lifecycle.at(hook), &["exec", "httpGet", "tcpSocket", "sleep"], grace);
        }
    }
    if lifecycle.has("stopSignal") {
        stop_signal(errors, &lifecycle.at("stopSignal"), os);
    }
    let liveness = container.at("livenessProbe");
    if liveness.exists() {
        probe(errors, &liveness, grace);
        one_success(errors, &liveness);
    }
    let readiness = container.at("readinessProbe");
    if readiness.exists() {
        probe(errors, &readiness, grace);
        if readiness.has("terminationGracePeriodSeconds") {
            errors.invalid(&readiness.at("terminationGracePeriodSeconds"), "must not be set for readinessProbes");
        }
    }
    let startup = container.at("startupProbe");
    if startup.exists() {
        probe(errors, &startup, grace);
        one_success(errors, &startup);
    }
}

fn one_success(errors: &mut Errors, probe: &Node) {
    if probe.number("successThreshold") != Some(1) {
        errors.invalid(&probe.at("successThreshold"), "must be 1");
    }
}

fn probe(errors: &mut Errors, probe: &Node, grace: Option<i64>) {
    handler(errors, probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        not_negative(errors, &probe.at(field));
    }
    let grace = probe.at("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&grace, "must be greater than 0");
    }
}

/// Exactly one of the kinds of handler must be there.
fn handler(errors: &mut Errors, at: &Node, kinds: &[&'static str], grace: Option<i64>) {
    let mut found = false;
    for kind in kinds.iter().filter(|kind| at.has(kind)) {
        let action = at.at(kind);
        if found {
            errors.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" => {
                if action.at("command").is_empty() {
                    errors.required(&action.at("command"), "");
                }
            }
            "httpGet" => http_get(errors, &action),
            "grpc" => port_number(errors, &action.at("port")),
            "sleep" => sleep(errors, &action, grace),
            _ => port_number_or_name(errors, &action.at("port")),
        }
    }
    if !found {
        errors.required(at, "must specify a handler type");
    }
}

fn http_get(errors: &mut Errors, get: &Node) {
    if get.text("path").is_empty() {
        errors.required(&get.at("path"), "");
    }
    port_number_or_name(errors, &get.at("port"));
    let scheme = get.at("scheme");
    if !["HTTP", "HTTPS"].contains(&scheme.str()) {
        errors.not_supported(&scheme, &["HTTP", "HTTPS"]);
    }
    for header in get.each("httpHeaders") {
        let name = header.text("name");
        for sentence in names::http_header_name(name) {
            errors.invalid_value(&get.path.child("httpHeaders"), &Value::from(name), sentence);
        }
    }
}

fn sleep(errors: &mut Errors, action: &Node, grace: Option<i64>) {
    let seconds = action.number("seconds").unwrap_or(0);
    if let Some(grace) = grace
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid_value(&action.path, &Value::from(seconds), detail);
    }
}

fn stop_signal(errors: &mut Errors, signal: &Node, os: &str) {
    match os {
        "" => errors.forbidden(signal, "may not be set for containers with empty `spec.os.name`"),
        "windows" if !SIGNALS_WINDOWS.contains(&signal.str()) => errors.not_supported(signal, SIGNALS_WINDOWS),
        "windows" => {}
        _ => {
            let known = linux_signals();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            if !known.contains(&signal.str()) {
                errors.not_supported(signal, &known);
            }
        }
    }
}

/// Every signal of Linux, sorted as upstream shows them.
fn linux_signals() -> Vec<String> {
    const NAMED: &str = "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN SEGV \
                         STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ";
    let mut all: Vec<String> = NAMED.split_whitespace().map(|name| format!("SIG{name}")).collect();
    all.extend((1..=14).map(|number| format!("SIGRTMAX-{number}")));
    all.extend((1..=15).map(|number| format!("SIGRTMIN+{number}")));
    all.sort();
    all
}
