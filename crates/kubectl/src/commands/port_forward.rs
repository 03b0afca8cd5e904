//! `kubectl port-forward`: local ports that end inside of a pod.

use std::time::Duration;

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::{pods, stream};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "port-forward",
    group: super::TROUBLE,
    short: "Forward one or more local ports to a pod.",
    examples: "kubectl port-forward pod/web 8080:80\nkubectl port-forward service/web :80",
    usage: "TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag { default: "localhost", ..Flag::list("address", "Addresses to listen on: localhost, or addresses.") },
    Flag::duration("pod-running-timeout", "1m0s", "How long to wait for a pod to run."),
];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    local: u16,
    remote: u16,
}

const USAGE: &str = "TYPE/NAME and list of ports are required for port-forward";

async fn run(session: &Session) -> Result<()> {
    let [target, ports @ ..] = session.arguments() else { return session.usage(USAGE) };
    if ports.is_empty() {
        return session.usage(USAGE);
    }
    let limit = Duration::from_secs_f64(session.flags.seconds("pod-running-timeout").max(0.0));
    let pod = pods::one(session, target, limit).await?;
    let service = service(session, target).await?;
    check_running(&pod)?;
    let pairs: Vec<Pair> = ports.iter().map(|port| pair(port, &pod, service.as_ref())).collect::<Result<_>>()?;
    let mut addresses = session.flags.list("address");
    if addresses.is_empty() {
        addresses.push("localhost".into());
    }
    let addresses: Vec<String> = addresses.iter().flat_map(|address| hosts(address)).collect();
    let mut listeners = Vec::new();
    for pair in pairs {
        listeners.extend(listen(pair, &addresses).await?);
    }
    serve(session, &pod, listeners).await
}

/// The service that was named, if one was.
async fn service(session: &Session, target: &str) -> Result<Option<Value>> {
    let Some((kind, name)) = target.split_once('/') else { return Ok(None) };
    if !session.mapping(kind).await?.is("", "services") {
        return Ok(None);
    }
    let path = format!("/api/v1/namespaces/{}/services/{name}", session.namespace()?);
    Ok(Some(session.send(&Call::get(path)).await?))
}

fn check_running(pod: &Value) -> Result<()> {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if phase != "Running" {
        return Err(Failure::message(format!(
            "unable to forward port because pod is not running. Current status={phase}"
        )));
    }
    Ok(())
}

/// Listens for one pair on every address that this machine has.
async fn listen(pair: Pair, addresses: &[String]) -> Result<Vec<(TcpListener, u16)>> {
    let mut local = pair.local;
    let mut listeners = Vec::new();
    for address in addresses {
        match TcpListener::bind((address.as_str(), local)).await {
            Ok(listener) => {
                local = listener.local_addr()?.port();
                let shown = if address.contains(':') { format!("[{address}]") } else { address.clone() };
                terminal::outln(&format!("Forwarding from {shown}:{local} -> {}", pair.remote));
                listeners.push((listener, pair.remote));
            }
            // A machine without one of the two families still has the other.
            Err(error) if listeners.is_empty() && address != "::1" => {
                terminal::errln(&format!(
                    "Unable to listen on port {local}: Listeners failed to create with the following errors: [unable to create listener: Error listen tcp4 {address}:{local}: bind: {}]",
                    crate::failure::go_io_error(&error)
                ));
            }
            Err(_) => {}
        }
    }
    if listeners.is_empty() {
        return Err(Failure::message(format!(
            "unable to listen on any of the requested ports: [{{{} {}}}]",
            pair.local, pair.remote
        )));
    }
    Ok(listeners)
}

/// Forwards every connection, until the first listener cannot accept any more.
async fn serve(session: &Session, pod: &Value, listeners: Vec<(TcpListener, u16)>) -> Result<()> {
    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_string();
    let (namespace, name) = (text("namespace"), text("name"));
    let api = stream::pods(session, &namespace)?;
    let mut accepting = tokio::task::JoinSet::new();
    for (listener, remote) in listeners {
        let (api, name) = (api.clone(), name.clone());
        accepting.spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { return };
                let port = listener.local_addr().map(|address| address.port()).unwrap_or_default();
                terminal::outln(&format!("Handling connection for {port}"));
                let (api, name) = (api.clone(), name.clone());
                tokio::spawn(async move {
                    if let Err(error) = forward(api, name, remote, connection).await {
                        terminal::errln(&format!("error: an error occurred forwarding {port} -> {remote}: {error}"));
                    }
                });
            }
        });
    }
    accepting.join_next().await;
    Ok(())
}

/// Why one connection could not be forwarded.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    #[error(transparent)]
    Connect(#[from] kube::Error),
    #[error(transparent)]
    Copy(#[from] std::io::Error),
    #[error("cannot open a stream to the port")]
    NoStream,
    #[error("error forwarding port {remote} to pod {pod}: {message}")]
    Refused { remote: u16, pod: String, message: String },
}

async fn forward(
    api: kube::Api<k8s_openapi::api::core::v1::Pod>,
    pod: String,
    remote: u16,
    mut connection: TcpStream,
) -> std::result::Result<(), ForwardError> {
    let mut forwarder = api.portforward(&pod, &[remote]).await?;
    let (Some(mut upstream), Some(failed)) = (forwarder.take_stream(remote), forwarder.take_error(remote)) else {
        return Err(ForwardError::NoStream);
    };
    let copied = tokio::select! {
        copied = copy_bidirectional(&mut connection, &mut upstream) => copied.map(|_| None)?,
        message = failed => message,
    };
    drop(upstream);
    match copied {
        Some(message) => Err(ForwardError::Refused { remote, pod, message }),
        None => Ok(()),
    }
}

fn hosts(address: &str) -> Vec<String> {
    match address {
        "localhost" => vec!["127.0.0.1".into(), "::1".into()],
        other => vec![other.to_string()],
    }
}

/// `80`, `8080:80`, `:80`, `8080:http`. A service's own ports are translated to those of its pod.
fn pair(text: &str, pod: &Value, service: Option<&Value>) -> Result<Pair> {
    let (local, remote) = match text.split_once(':') {
        Some((local, remote)) => (local, remote),
        None => (text, text),
    };
    // What a name without a local port stands for here, and there.
    let (own_port, remote_port) = match service {
        Some(service) => of_service(service, pod, remote)?,
        None => {
            let port = match remote.parse::<u16>() {
                Ok(port) => port,
                Err(_) => named(pod, remote).ok_or_else(|| {
                    Failure::message(format!(
                        "Pod '{}' does not have a named port '{remote}'",
                        pod["metadata"]["name"].as_str().unwrap_or_default()
                    ))
                })?,
            };
            (port, port)
        }
    };
    if remote_port == 0 {
        return Err(Failure::message("remote port must be > 0"));
    }
    let local = match local {
        "" => 0,
        local => match local.parse::<u16>() {
            Ok(port) => port,
            Err(_) if !text.contains(':') => own_port,
            Err(_) => {
                let digits = !local.is_empty() && local.bytes().all(|byte| byte.is_ascii_digit());
                let why = if digits { "value out of range" } else { "invalid syntax" };
                return Err(Failure::message(format!(
                    "error parsing local port '{local}': strconv.ParseUint: parsing {local:?}: {why}"
                )));
            }
        },
    };
    Ok(Pair { local, remote: remote_port })
}

fn named(pod: &Value, name: &str) -> Option<u16> {
    let containers =
        ["containers", "initContainers"].iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.find(|port| port["name"] == name)?["containerPort"].as_u64().and_then(|port| u16::try_from(port).ok())
}

/// The number of a service's port, and the pod's port behind it. Of a service without an address both are the same: whoever
/// asks DNS for it reaches the pod itself.
fn of_service(service: &Value, pod: &Value, wanted: &str) -> Result<(u16, u16)> {
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(port) = ports.iter().find(|port| {
        port["name"] == wanted || wanted.parse::<u64>().is_ok_and(|number| port["port"].as_u64() == Some(number))
    }) else {
        return Err(Failure::message(format!(
            "Service {} does not have a service port {wanted}",
            service["metadata"]["name"].as_str().unwrap_or_default()
        )));
    };
    let number = |port: &Value| {
        let number = port.as_u64().and_then(|port| u16::try_from(port).ok());
        number.ok_or_else(|| Failure::message("cannot find the target port of the service"))
    };
    let own = number(&port["port"])?;
    let target = match &port["targetPort"] {
        _ if service["spec"]["clusterIP"] == "None" => own,
        Value::String(name) => {
            named(pod, name).ok_or_else(|| Failure::message(format!("Pod does not have a named port '{name}'")))?
        }
        Value::Null => own,
        target => number(target)?,
    };
    Ok((own, target))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_numbers_or_names() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]}});
        let check = |text: &str, local: u16, remote: u16| {
            assert_eq!(
                pair(text, &pod, None).unwrap_or_else(|failure| panic!("{}", failure.text())),
                Pair { local, remote },
                "{text}"
            )
        };
        check("80", 80, 80);
        check("8000:80", 8000, 80);
        check(":80", 0, 80);
        check("http", 8080, 8080);
        check("9000:http", 9000, 8080);
        let refused = |text: &str| pair(text, &pod, None).unwrap_err().text();
        assert_eq!(refused("none"), "Pod 'a' does not have a named port 'none'");
        assert_eq!(refused("1:0"), "remote port must be > 0");
        let parsing = "strconv.ParseUint: parsing";
        assert_eq!(refused("x:80"), format!("error parsing local port 'x': {parsing} \"x\": invalid syntax"));
        let large = format!("error parsing local port '70000': {parsing} \"70000\": value out of range");
        assert_eq!(refused("70000:80"), large);
        let service =
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": "http", "name": "web"}]}});
        assert_eq!(pair("1:80", &pod, Some(&service)).map(|pair| pair.remote).unwrap_or(0), 8080);
        let missing = pair("1:81", &pod, Some(&service)).unwrap_err().text();
        assert_eq!(missing, "Service s does not have a service port 81");
        assert_eq!(pair("1:web", &pod, Some(&service)).map(|pair| pair.remote).unwrap_or(0), 8080);
    }

    /// The cases of upstream's own test of it. `80:8080` is a local port and the pod's; one number is both.
    #[test]
    fn ports_of_services_are_translated_as_upstream_does() {
        for line in include_str!("testdata/service-ports.jsonl").lines() {
            let case: Value = serde_json::from_str(line).expect("a line is JSON");
            let ports = case["ports"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let found: Result<Vec<String>> = ports
                .map(|text| {
                    let Pair { local, remote } = pair(text, &case["pod"], Some(&case["service"]))?;
                    Ok(match local {
                        0 => format!(":{remote}"),
                        local if local == remote && !text.contains(':') => local.to_string(),
                        local => format!("{local}:{remote}"),
                    })
                })
                .collect();
            let found = found.map(Value::from).ok();
            assert_eq!(found.as_ref(), case.get("out"), "{}", case["name"]);
        }
    }

    #[test]
    fn a_service_without_a_target_port_uses_its_own() {
        let service =
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": 90}]}});
        let remote = |text: &str| pair(text, &json!({}), Some(&service)).unwrap().remote;
        assert_eq!((remote("80"), remote("1:81")), (80, 90));
    }

    #[test]
    fn only_running_pods_are_forwarded_to() {
        assert!(check_running(&json!({"status": {"phase": "Running"}})).is_ok());
        let failure = check_running(&json!({"status": {"phase": "Pending"}})).unwrap_err();
        assert!(failure.text().ends_with("Current status=Pending"));
    }

    #[test]
    fn localhost_has_two_addresses() {
        assert_eq!(hosts("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(hosts("10.0.0.1"), ["10.0.0.1"]);
    }
}
