use super::*;
use crate::command::GLOBAL;

#[test]
fn the_first_file_that_names_a_thing_wins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::write(
        &path,
        "clusters: [{name: c, cluster: {server: \"https://one:1\", certificate-authority: ca.pem}}]\n\
         contexts: [{name: x, context: {cluster: c, user: u, namespace: team}}]\ncurrent-context: x\n",
    )
    .unwrap();
    let line = |more: &str| -> Parsed {
        let line = format!("--kubeconfig={} {more}", path.display());
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Parsed::parse(&[GLOBAL], &line).unwrap()
    };
    let config = merged(&line("")).unwrap();
    assert_eq!(config["current-context"], "x");
    let authority = named(&config, "clusters", "c").unwrap()["cluster"]["certificate-authority"].clone();
    assert_eq!(authority, folder.path().join("ca.pem").display().to_string());
    let settings = super::settings(&line("--insecure-skip-tls-verify --as jane --as-group a --as-group b")).unwrap();
    assert_eq!((settings.server.as_str(), settings.namespace.as_str()), ("https://one:1", "team"));
    assert_eq!(settings.client.auth_info.impersonate.as_deref(), Some("jane"));
    assert_eq!(settings.client.auth_info.impersonate_groups.map(|groups| groups.len()), Some(2));
    let refused = super::settings(&line("--context=none")).err().unwrap();
    assert_eq!(refused.text(), "Error in configuration: context was not found for specified context: none");
}

fn flags(line: &str) -> Parsed {
    let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    Parsed::parse(&[GLOBAL], &line).unwrap()
}

#[test]
fn flags_take_the_place_of_the_file() {
    let cluster = json!({"server": "https://a", "certificate-authority-data": "x", "certificate-authority": "y"});
    let changed = with_cluster_flags(cluster.clone(), &flags("--server=b:1 --insecure-skip-tls-verify"));
    assert_eq!(changed, json!({"server": "http://b:1", "insecure-skip-tls-verify": true}));
    let changed = with_cluster_flags(cluster, &flags("--certificate-authority=z"));
    assert_eq!(changed, json!({"server": "https://a", "certificate-authority": "z"}));
    let user = json!({"tokenFile": "/no/such", "exec": {}, "auth-provider": {}});
    let changed = with_user_flags(user, &flags("--token=t --as=jane --as-group=a"));
    assert_eq!(changed, json!({"token": "t", "as": "jane", "as-groups": ["a"]}));
}

#[test]
fn a_token_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "secret\n").unwrap();
    let user = with_user_flags(json!({"tokenFile": path.display().to_string()}), &flags(""));
    assert_eq!(user, json!({"token": "secret"}));
}

#[test]
fn users_are_checked_before_anything_is_asked() {
    let problem = |user: Value, line: &str| check_user("u", &user, &flags(line)).unwrap_err().text();
    let both = json!({"client-certificate": "/no/such", "client-certificate-data": "x"});
    let text = problem(both, "");
    assert!(text.contains("client-cert-data and client-cert are both specified for u."), "{text}");
    let methods = problem(json!({"token": "t"}), "--username=a");
    assert!(methods.contains("more than one authentication method found for u; found [token basicAuth]"), "{methods}");
    let groups = problem(json!({"as-groups": ["a"]}), "");
    assert!(groups.ends_with("for u without impersonating a user"), "{groups}");
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}});
    assert!(problem(exec, "").starts_with("interactiveMode must be specified for u"));
    assert!(check_user("u", &json!({"token": "t"}), &flags("")).is_ok());
}

#[test]
fn contexts_are_found_or_told_as_missing() {
    let config = json!({"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c"}}]});
    assert_eq!(context(&config, None).unwrap()["cluster"], "c");
    let refused = context(&config, Some("y".into())).unwrap_err().report("kubectl").0;
    assert_eq!(refused, "Error in configuration: context was not found for specified context: y\n");
    let stale = json!({"current-context": "z"});
    let refused = context(&stale, None).unwrap_err().report("kubectl").0;
    assert_eq!(refused, "error: context was not found for specified context: z\n");
    assert!(context(&json!({}), None).unwrap().is_null());
}

#[test]
fn files_are_written_with_what_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/config");
    write(&path, &json!({"contexts": [], "preferences": {}})).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = "apiVersion: v1\nclusters: null\ncontexts: null\ncurrent-context: \"\"\nkind: Config\nusers: null\n";
    assert_eq!(text, expected);
    assert_eq!(read(&folder.path().join("none")).unwrap(), json!({}));
    std::fs::write(&path, "just a text").unwrap();
    assert!(read(&path).unwrap_err().text().contains("couldn't get version/kind"));
}
