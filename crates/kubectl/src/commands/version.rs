//! `kubectl version`.

use serde_json::{Value, json};

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::json as go_json;
use crate::session::{Call, Session, go_architecture};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "version",
    group: super::OTHER,
    short: "Print the client and server version information for the current context.",
    examples: "kubectl version",
    usage: "[options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("client", "Only the client's version, without a server."),
    Flag::text("output", "", "yaml or json.").short('o'),
];

const KUSTOMIZE: &str = "v5.8.1";

const FIELD_ORDER: &[&str] = &[
    "major",
    "minor",
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];

async fn run(session: &Session) -> Result<()> {
    if !session.arguments().is_empty() {
        return Err(Failure::message(format!("extra arguments: [{}]", session.arguments().join(" "))));
    }
    let output = session.flags.text("output");
    if !["", "yaml", "json"].contains(&output) {
        return Err(Failure::message("--output must be 'yaml' or 'json'"));
    }
    let client = json!({
        "major": "1",
        "minor": "36",
        "gitVersion": crate::VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture()),
    });
    let mut all = json!({"clientVersion": client, "kustomizeVersion": KUSTOMIZE});
    let mut failed = None;
    if !session.flags.on("client") {
        match session.send(&Call::get("/version")).await {
            Ok(server) => all["serverVersion"] = server,
            Err(failure) => failed = Some(failure),
        }
    }
    match output {
        "json" => {
            // With two spaces, not with the four that objects have.
            let text = go_json::pretty_in_order(&all, FIELD_ORDER);
            text.lines().for_each(|line| terminal::outln(&line.replace("    ", "  ")));
        }
        "yaml" => terminal::outln(&crate::output::yaml::text(&all)),
        _ => {
            terminal::outln(&format!("Client Version: {}", crate::VERSION));
            terminal::outln(&format!("Kustomize Version: {KUSTOMIZE}"));
            if let Some(server) = all["serverVersion"]["gitVersion"].as_str() {
                terminal::outln(&format!("Server Version: {server}"));
            }
        }
    }
    if let Some(skew) = skew(&all["serverVersion"]) {
        terminal::errln(&format!("WARNING: {skew}"));
    }
    failed.map_or(Ok(()), Err)
}

/// One minor version of difference is supported, more is worth a word.
fn skew(server: &Value) -> Option<String> {
    let minor: i64 = server["minor"].as_str()?.trim_end_matches('+').parse().ok()?;
    ((minor - 36).abs() > 1).then(|| {
        format!("version difference between client (1.36) and server (1.{minor}) exceeds the supported minor version skew of +/-1")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_minor_version_is_no_skew() {
        let server = |minor: &str| skew(&json!({"major": "1", "minor": minor}));
        assert!(server("35").is_none() && server("36").is_none() && server("37+").is_none());
        assert!(server("34").unwrap().contains("client (1.36) and server (1.34) exceeds"));
        assert!(skew(&json!({})).is_none());
    }
}
