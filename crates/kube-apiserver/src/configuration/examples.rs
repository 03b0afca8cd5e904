//! Files with every field that each kind of configuration has: they load unchanged, and a mistake in any of their fields is told with its
//! line.

use std::path::Path;

use component_base::Clock;

use crate::{admission, audit, authn, authz, egress, encryption, traces};

const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
    users: [{name: u, user: {}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";

/// Whether a file of that kind is taken, or why not.
type Load = fn(&str, &Path) -> Result<(), Box<dyn std::error::Error>>;

const EXAMPLES: [(&str, &str, Load); 7] = [
    ("encryption", include_str!("examples/encryption.yaml"), |text, _| Ok(encryption::parse(text).map(drop)?)),
    ("authentication", include_str!("examples/authentication.yaml"), |_, path| {
        let settings = authn::Settings { file: Some(path.to_owned()), ..authn::Settings::default() };
        Ok(settings.load(&[], true, Clock::system()).map(drop)?)
    }),
    ("authorization", include_str!("examples/authorization.yaml"), |_, path| {
        let config = authz::Config { file: Some(path.to_owned()), ..authz::Config::of_modes(&[]) };
        Ok(authz::Authorizer::new(&config).map(drop)?)
    }),
    ("admission", include_str!("examples/admission.yaml"), |_, path| Ok(admission::load(path).map(drop)?)),
    ("egress", include_str!("examples/egress.yaml"), |text, _| Ok(egress::check_text(text)?)),
    ("tracing", include_str!("examples/tracing.yaml"), |text, _| Ok(traces::Configuration::parse(text).map(drop)?)),
    ("audit", include_str!("examples/audit.yaml"), |text, _| Ok(audit::TestedPolicy::parse(text).map(drop)?)),
];

/// The kind, with the file in a folder of its own and what it names beside it.
fn loaded(load: Load, text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    let text = text.replace("KUBECONFIG", &kubeconfig.display().to_string());
    let path = folder.path().join("file.yaml");
    std::fs::write(&path, &text).unwrap();
    load(&text, &path).map_err(|error| error.to_string())
}

#[tokio::test]
async fn files_with_every_field_load_unchanged() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (name, text, load) in EXAMPLES {
        assert_eq!(loaded(load, text), Ok(()), "{name}");
    }
}

/// The field of a line, if it begins one.
fn field(line: &str) -> Option<&str> {
    let bare = line.trim_start().trim_start_matches("- ");
    let (name, value) = bare.split_once(':')?;
    // Names of users have colons, too.
    if !value.is_empty() && !value.starts_with(' ') {
        return None;
    }
    let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '-';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

#[tokio::test]
async fn a_mistake_in_any_field_is_told_with_its_line() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (file, text, load) in EXAMPLES {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            // What kind of file it is stands above the fields.
            let Some(name) = field(line).filter(|name| !matches!(*name, "apiVersion" | "kind")) else { continue };
            let mut wrong: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
            wrong[index] = line.replacen(&format!("{name}:"), &format!("{name}Wrong:"), 1);
            let outcome = loaded(load, &wrong.join("\n"));
            let error = outcome.expect_err(&format!("{file} line {}: {} is accepted", index + 1, wrong[index]));
            let expected = [format!("line {}: ", index + 1), format!("{name}Wrong")];
            assert!(expected.iter().all(|part| error.contains(part)), "{file} line {}: {error}", index + 1);
        }
    }
}
