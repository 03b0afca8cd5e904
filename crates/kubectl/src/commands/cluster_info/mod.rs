//! `kubectl cluster-info`: where the control plane and its services answer.

mod dump;

use serde_json::Value;

use crate::command::Command;
use crate::failure::Result;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "cluster-info",
    group: super::CLUSTER,
    short: "Display cluster information.",
    usage: "[flags] [options]",
    subcommands: &[&dump::COMMAND],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

async fn run(session: &Session) -> Result<()> {
    let server = &session.settings()?.server;
    let call = Call::get("/api/v1/namespaces/kube-system/services")
        .with("labelSelector", "kubernetes.io/cluster-service=true");
    let services = session.send(&call).await?;
    // Colours only where somebody looks.
    let colored = std::io::IsTerminal::is_terminal(&std::io::stdout());
    terminal::outln(&sentence("Kubernetes control plane", server, colored));
    for service in services["items"].as_array().into_iter().flatten() {
        let (name, link) = proxied(service, server);
        terminal::outln(&sentence(name, &link, colored));
    }
    terminal::outln("\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.");
    Ok(())
}

fn sentence(name: &str, link: &str, colored: bool) -> String {
    if colored {
        format!("\x1b[0;32m{name}\x1b[0m is running at \x1b[0;33m{link}\x1b[0m")
    } else {
        format!("{name} is running at {link}")
    }
}

/// The name of a service of the cluster, and where the API server proxies to it.
fn proxied<'a>(service: &'a Value, server: &str) -> (&'a str, String) {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let shown = service["metadata"]["labels"]["kubernetes.io/name"].as_str().unwrap_or(name);
    let port = service["spec"]["ports"][0]["name"].as_str().map(|port| format!(":{port}")).unwrap_or_default();
    (shown, format!("{server}/api/v1/namespaces/kube-system/services/{name}{port}/proxy"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_are_named_by_label_and_port() {
        let link = |rest: &str| format!("https://a/api/v1/namespaces/kube-system/services/{rest}/proxy");
        let plain = json!({"metadata": {"name": "dns"}, "spec": {}});
        assert_eq!(proxied(&plain, "https://a"), ("dns", link("dns")));
        let named = json!({"metadata": {"name": "kube-dns", "labels": {"kubernetes.io/name": "CoreDNS"}},
            "spec": {"ports": [{"name": "dns"}]}});
        assert_eq!(proxied(&named, "https://a"), ("CoreDNS", link("kube-dns:dns")));
    }
}
