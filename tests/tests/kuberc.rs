//! Preferences of a person: our kubectl reads and changes the kuberc. The real one on this machine is older than they are.

use std::path::Path;
use std::process::Command;

/// Standard output, or standard error where the command fails.
fn kubectl(home: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Result<String, String> {
    let program = testkit::server::binary().unwrap();
    let output = Command::new(program)
        .arg("kubectl")
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERC")
        .env("HOME", home)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn aliases_and_defaults_are_set_and_used() {
    let home = tempfile::tempdir().unwrap();
    let run = |line: &str| kubectl(home.path(), &[], &line.split(' ').collect::<Vec<_>>());
    let file = home.path().join(".kube/kuberc");
    let view = run("kuberc view").unwrap();
    assert!(view.starts_with(&format!("kuberc file not found at {}\nWould you like", file.display())), "{view}");
    let set =
        run("kuberc set --section aliases --name ver --command version --option client=true --option output=yaml");
    assert_eq!(set.unwrap(), format!("Updated {}\n", file.display()));
    assert!(run("ver").unwrap().starts_with("clientVersion:\n"));
    // What is said on the line counts.
    assert!(run("ver -o json").unwrap().starts_with("{\n  \"clientVersion\""));
    assert!(kubectl(home.path(), &[("KUBERC", "off")], &["ver"]).unwrap_err().contains("unknown command \"ver\""));

    run("kuberc set --section defaults --command version --option client=true").unwrap();
    assert!(run("version").unwrap().starts_with("Client Version: "));
    let again = run("kuberc set --section defaults --command version --option output=json").unwrap_err();
    assert_eq!(again, "error: defaults for command \"version\" already exist, use --overwrite to replace\n");
    let view = run("kuberc view").unwrap();
    assert!(view.contains("kind: Preference\n") && view.contains("- command: version\n  name: ver\n"), "{view}");

    std::fs::write(&file, "apiVersion: v1\nkind: Other\n").unwrap();
    let elsewhere = run(&format!("version --client --kuberc={}", file.display())).unwrap_err();
    assert!(
        elsewhere.starts_with("error occurred while applying preferences kuberc error kuberc: no valid"),
        "{elsewhere}"
    );
    // One that was not asked for is only worth a word.
    assert!(run("version --client").unwrap().starts_with("Client Version: "));
}

#[test]
fn programs_for_credentials_run_only_as_far_as_allowed() {
    let home = tempfile::tempdir().unwrap();
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/get-token, interactiveMode: Never}}}]\n";
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::write(home.path().join(".kube/config"), config).unwrap();
    let run = |line: &str| kubectl(home.path(), &[], &line.split(' ').collect::<Vec<_>>());
    run("kuberc set --section credentialplugin --policy DenyAll").unwrap();
    let refused = run("get pods").unwrap_err();
    assert!(
        refused.starts_with("error: plugin \"/bin/get-token\" not allowed: policy set to \"DenyAll\""),
        "{refused}"
    );
    run("kuberc set --section credentialplugin --policy Allowlist --allowlist-entry command=other").unwrap();
    assert!(run("get pods").unwrap_err().contains("is not in the allowlist"));
    run("kuberc set --section credentialplugin --policy Allowlist --allowlist-entry command=get-token").unwrap();
    assert!(!run("get pods").unwrap_err().contains("not allowed"));
}
