//! Upstream's published example, its messages for what is wrong, and users from claims.

use serde_json::json;

use super::super::anonymous::Anonymous;
use super::config::parse;
use super::*;

/// The example of upstream's documentation.
const EXAMPLE: &str = include_str!("../testdata/authentication-config.yaml");
const OWN: &str = "https://kubernetes.default.svc.cluster.local";

fn user(config: &Configuration, claims: Value) -> Result<String, String> {
    let user = config.issuers[0].mapping.user(&claims).map_err(|error| error.to_string())?;
    Ok(format!("{} {:?} {:?} {:?}", user.name, user.uid, user.groups, user.extra))
}

#[test]
fn the_published_example_loads_and_maps() {
    let config = parse(EXAMPLE, &[OWN.to_owned()]).unwrap();
    let paths = ["/livez", "/readyz", "/healthz"].map(str::to_owned).to_vec();
    assert_eq!(config.anonymous, Some(Anonymous::At(paths)));
    let issuer = &config.issuers[0];
    assert_eq!((issuer.url.as_str(), issuer.audiences.len()), ("https://example.com", 2));
    // The claims that upstream's page shows beside the example.
    let claims = json!({
        "aud": "kubernetes", "exp": 1703232949, "iat": 1701107233, "iss": "https://example.com", "jti": "7c337942",
        "nbf": 1703200000, "sub": "auth", "tenant": "72f988bf", "username": "foo", "roles": "user,admin",
        "hd": "example.com",
    });
    let expected = r#"foo:external-user "auth" ["user", "admin"] {"authentication.kubernetes.io/credential-id": ["JTI=7c337942"], "example.com/tenant": ["72f988bf"]}"#;
    assert_eq!(user(&config, claims.clone()).as_deref(), Ok(expected));

    let changed = |field: &str, value: Value| {
        let mut claims = claims.clone();
        claims[field] = value;
        user(&config, claims).unwrap_err()
    };
    assert_eq!(changed("hd", json!("other.com")), "oidc: required claim hd value does not match");
    assert!(changed("nbf", json!(1)).contains("total token lifetime must not exceed 24 hours"));
    assert!(changed("username", json!("system:admin")).contains("username cannot used reserved system: prefix"));
    assert!(changed("roles", json!("system:masters")).contains("groups cannot used reserved system: prefix"));
    assert!(changed("tenant", json!(7)).contains("must return a string or a list of strings"));
    assert!(changed("username", Value::Null).contains("username claim expression"));
}

#[test]
fn mistakes_are_told_as_upstream_does() {
    let check = |from: &str, to: &str, expected: &str| {
        assert!(EXAMPLE.contains(from), "{from}");
        let told = parse(&EXAMPLE.replace(from, to), &[OWN.to_owned()]).unwrap_err().to_string();
        assert!(told.contains(expected), "{to}: {told}");
        assert!(told.starts_with("line "), "{told}");
    };
    check(
        "url: https://example.com ",
        "url: http://example.com ",
        "jwt[0].issuer.url: Invalid value: \"http://example.com\": URL scheme must be https",
    );
    check("url: https://example.com ", "url: https://a@example.com ", "URL must not contain a username or password");
    check("url: https://example.com ", "url: https://example.com?q=1 ", "URL must not contain a query");
    check("url: https://example.com ", &format!("url: {OWN} "), "URL must not overlap with disallowed issuers");
    check("    url: https://example.com ", "    ", "jwt[0].issuer.url: Required value");
    check(
        "    - my-app # Same as --oidc-client-id.\n    - my-other-app\n",
        "",
        "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
    );
    check("- my-other-app", "- my-app", "jwt[0].issuer.audiences[1]: Duplicate value: \"my-app\"");
    check("audienceMatchPolicy: MatchAny", "audienceMatchPolicy: All", "must be MatchAny for multiple audiences");
    check(
        "  - claim: hd\n",
        "  - claim: hd\n    message: m\n",
        "message: Invalid value: \"m\": may not be specified when claim is set",
    );
    check("'claims.hd == \"example.com\"'", "'claims.hd =='", "claimValidationRules[1].expression: Invalid value");
    check("'claims.hd == \"example.com\"'", "'\"text\"'", "must evaluate to bool");
    check("'claims.username + \":external-user\"'", "'clams.username'", "undeclared reference to 'clams'");
    check(
        "'claims.username + \":external-user\"'",
        "'claims.email'",
        "claims.email_verified must be used in claimMappings.username.expression",
    );
    check("user.username.startsWith", "user.name.startsWith", "undefined field 'name'");
    check("'example.com/tenant'", "'tenant'", "must be a domain-prefixed path");
    check("'example.com/tenant'", "'a.k8s.io/tenant'", "are reserved for Kubernetes use");
    check("'example.com/tenant'", "'example.com/Tenant'", "must be lowercase");
    check("  enabled: true", "  enabled: false", "enabled should be set to true when conditions are defined");
    check("claimMappings:", "claimMapings:", "unknown field \"jwt[0].claimMapings\"");
}

#[test]
fn flags_say_a_part_of_it() {
    let flags = Flags {
        issuer_url: "https://sso.example".into(),
        client_id: "kubernetes".into(),
        username_claim: "sub".into(),
        groups_claim: "groups".into(),
        groups_prefix: "oidc:".into(),
        required_claims: [("hd".to_owned(), "x".to_owned())].into(),
        ..Flags::default()
    };
    let claims = json!({"sub": "ada", "groups": ["dev"], "hd": "x"});
    let name = |flags: &Flags, claims: &Value| {
        let issuer = flags.issuer(&[]).unwrap();
        issuer.mapping.user(claims).map(|user| format!("{} {:?}", user.name, user.groups)).map_err(|e| e.to_string())
    };
    assert_eq!(name(&flags, &claims).unwrap(), r#"https://sso.example#ada ["oidc:dev"]"#);
    let plain = Flags { username_prefix: "-".into(), ..flags.clone() };
    assert_eq!(name(&plain, &claims).unwrap(), r#"ada ["oidc:dev"]"#);
    let email = Flags { username_claim: "email".into(), ..flags.clone() };
    let mut mail = json!({"email": "a@b.c", "email_verified": false, "hd": "x"});
    assert_eq!(name(&email, &mail).unwrap_err(), "oidc: email not verified");
    mail["email_verified"] = true.into();
    assert_eq!(name(&email, &mail).unwrap(), "a@b.c []");
    assert_eq!(name(&flags, &json!({"sub": "ada"})).unwrap_err(), "oidc: required claim hd not present in ID token");
    let elsewhere = json!({"sub": "ada", "hd": "x", "_claim_names": {"groups": "src"}});
    assert!(name(&flags, &elsewhere).unwrap_err().contains("distributed claims"));
    let wrong = Flags { issuer_url: "http://sso.example".into(), ..flags };
    assert!(wrong.issuer(&[]).unwrap_err().to_string().contains("URL scheme must be https"));
}
