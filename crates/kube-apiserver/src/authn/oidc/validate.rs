//! What an AuthenticationConfiguration may say, with upstream's messages.

use std::collections::{BTreeMap, HashSet};

use machinery::cel::{Env, Program};
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::Value;

use super::super::anonymous::Anonymous;
use super::claims::{Expression, Mapping, Rule, Source};
use super::config::Issuer;
use super::keys::Algorithm;

const ISSUERS_MAX: usize = 64;
const BOTH: &str = "claim and expression can't both be set";
const NEITHER: &str = "claim or expression is required";
const EMAIL: &str = "claims.email_verified must be used in claimMappings.username.expression or \
    claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
    claimMappings.username.expression";

/// All of them where there is nothing wrong; the errors say what is.
pub fn issuers(list: &Node, own: &[String], algorithms: &[Algorithm], errors: &mut Errors) -> Vec<Issuer> {
    if list.len() > ISSUERS_MAX {
        errors.too_many(list, list.len(), ISSUERS_MAX);
        return Vec::new();
    }
    let (mut urls, mut discovery_urls) = (HashSet::new(), HashSet::new());
    let mut found = Vec::new();
    for one in list.items() {
        let issuer = one.at("issuer");
        check_issuer(&issuer, own, errors);
        let mapping = mapping(&one, errors);
        let (url, discovery) = (issuer.at("url"), issuer.at("discoveryURL"));
        if !urls.insert(url.str()) {
            errors.duplicate(&url);
        }
        if !discovery.str().is_empty() && !discovery_urls.insert(discovery.str()) {
            errors.duplicate(&discovery);
        }
        let Some(mapping) = mapping else { continue };
        found.push(Issuer {
            url: url.str().to_owned(),
            discovery_url: discovery.str().to_owned(),
            authority: issuer.text("certificateAuthority").to_owned(),
            audiences: issuer.each("audiences").map(|audience| audience.str().to_owned()).collect(),
            algorithms: algorithms.to_vec(),
            mapping,
            written: one.value.clone(),
        });
    }
    found
}

pub fn anonymous(at: &Node, errors: &mut Errors) -> Option<Anonymous> {
    if !at.exists() {
        return None;
    }
    let conditions = at.at("conditions");
    let paths: Vec<String> = conditions.items().map(|condition| condition.text("path").to_owned()).collect();
    if at.flag("enabled") {
        return Some(if paths.is_empty() { Anonymous::Everywhere } else { Anonymous::At(paths) });
    }
    if !paths.is_empty() {
        errors.invalid(&conditions, "enabled should be set to true when conditions are defined");
    }
    Some(Anonymous::Nowhere)
}

fn check_issuer(issuer: &Node, own: &[String], errors: &mut Errors) {
    let (url, discovery) = (issuer.at("url"), issuer.at("discoveryURL"));
    match url.str() {
        "" => errors.required(&url, ""),
        _ => check_url(&url, own, errors),
    }
    if !discovery.str().is_empty() {
        if !url.str().is_empty() && url.str().trim_end_matches('/') == discovery.str().trim_end_matches('/') {
            errors.invalid(&discovery, "discoveryURL must be different from URL");
        }
        check_url(&discovery, &[], errors);
    }
    check_audiences(issuer, errors);
    let authority = issuer.at("certificateAuthority");
    if !authority.str().is_empty() && trust::bundle(authority.str().as_bytes()).is_ok_and(|all| all.is_empty()) {
        let detail = "data does not contain any valid RSA or ECDSA certificates";
        errors.push(FieldError::new(Problem::Invalid, &authority.path, "\"<omitted>\"", detail));
    } else if let Err(error) = trust::bundle(authority.str().as_bytes()) {
        errors.push(FieldError::new(Problem::Invalid, &authority.path, "\"<omitted>\"", error.to_string()));
    }
    let egress = issuer.at("egressSelectorType");
    match egress.str() {
        "" => {}
        "controlplane" | "cluster" => {
            errors.invalid(&egress, "knarr has no egress selector and reaches issuers directly: leave it out");
        }
        _ => errors.invalid(&egress, "egress selector must be either controlplane or cluster"),
    }
}

fn check_url(at: &Node, own: &[String], errors: &mut Errors) {
    let text = at.str();
    if own.iter().any(|issuer| issuer == text) {
        errors.invalid(at, format!("URL must not overlap with disallowed issuers: [{}]", own.join(" ")));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if scheme != "https" {
        errors.invalid(at, "URL scheme must be https");
    }
    if authority.contains('@') {
        errors.invalid(at, "URL must not contain a username or password");
    }
    if text.split('#').next().is_some_and(|before| before.contains('?')) {
        errors.invalid(at, "URL must not contain a query");
    }
    if text.split_once('#').is_some_and(|(_, fragment)| !fragment.is_empty()) {
        errors.invalid(at, "URL must not contain a fragment");
    }
    if scheme == "https" && text.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::len)).unwrap_or(0) == 0 {
        errors.invalid(at, "URL must name a host");
    }
}

fn check_audiences(issuer: &Node, errors: &mut Errors) {
    let (list, policy) = (issuer.at("audiences"), issuer.at("audienceMatchPolicy"));
    if list.is_empty() {
        errors.required(&list, format!("at least one {} is required", list.path));
        return;
    }
    let mut seen = HashSet::new();
    for audience in list.items() {
        if audience.str().is_empty() {
            errors.required(&audience, "");
        }
        if !seen.insert(audience.str()) {
            errors.duplicate(&audience);
        }
    }
    match (list.len(), policy.str()) {
        (_, "MatchAny") | (1, "") => {}
        (1, _) => errors.invalid(&policy, "audienceMatchPolicy must be empty or MatchAny for single audience"),
        (_, text) => {
            let value = Value::from(text);
            errors.invalid_value(&policy.path, &value, "audienceMatchPolicy must be MatchAny for multiple audiences");
        }
    }
}

fn mapping(one: &Node, errors: &mut Errors) -> Option<Mapping> {
    let before = errors.0.len();
    let (required, claim_rules) = claim_rules(&one.at("claimValidationRules"), errors);
    let mappings = one.at("claimMappings");
    let username = prefixed(&mappings.at("username"), true, errors);
    let groups = prefixed(&mappings.at("groups"), false, errors);
    let uid = uid(&mappings.at("uid"), errors);
    let extra = extra(&mappings.at("extra"), errors);
    if let Some(Source::Expression(expression)) = &username {
        let reads = |expression: &Expression, field: &str| expression.program.selects("claims", field);
        let verified = reads(expression, "email_verified")
            || extra.iter().any(|(_, expression)| reads(expression, "email_verified"))
            || claim_rules.iter().any(|rule| reads(&rule.expression, "email_verified"));
        if reads(expression, "email") && !verified {
            errors.invalid(&mappings.at("username").at("expression"), EMAIL);
        }
    }
    let user_rules = user_rules(&one.at("userValidationRules"), errors);
    let username = username.filter(|_| errors.0.len() == before)?;
    Some(Mapping { username, groups, uid, extra, required, claim_rules, user_rules })
}

fn claim_rules(list: &Node, errors: &mut Errors) -> (BTreeMap<String, String>, Vec<Rule>) {
    let (mut required, mut rules, mut seen) = (BTreeMap::new(), Vec::new(), HashSet::new());
    for rule in list.items() {
        let (claim, expression) = (rule.at("claim"), rule.at("expression"));
        match (claim.str(), expression.str()) {
            ("", "") => errors.required(&rule, NEITHER),
            (name, "") => {
                if !rule.text("message").is_empty() {
                    errors.invalid(&rule.at("message"), "may not be specified when claim is set");
                }
                if required.insert(name.to_owned(), rule.text("requiredValue").to_owned()).is_some() {
                    errors.duplicate(&claim);
                }
            }
            ("", text) => {
                if !rule.text("requiredValue").is_empty() {
                    errors.invalid(&rule.at("requiredValue"), "may not be specified when expression is set");
                }
                if !seen.insert(text) {
                    errors.duplicate(&expression);
                    continue;
                }
                let compiled = compile(&expression, &Env::of_claims(), true, errors);
                let message = rule.text("message").to_owned();
                rules.extend(compiled.map(|expression| Rule { expression, message }));
            }
            (name, _) => errors.invalid_value(&rule.path, &Value::from(name), BOTH),
        }
    }
    (required, rules)
}

fn user_rules(list: &Node, errors: &mut Errors) -> Vec<Rule> {
    let (mut rules, mut seen) = (Vec::new(), HashSet::new());
    for rule in list.items() {
        let at = rule.at("expression");
        if at.str().is_empty() {
            errors.required(&at, "");
        } else if !seen.insert(at.str()) {
            errors.duplicate(&at);
        } else {
            let compiled = compile(&at, &Env::of_user(), true, errors);
            let message = rule.text("message").to_owned();
            rules.extend(compiled.map(|expression| Rule { expression, message }));
        }
    }
    rules
}

fn prefixed(at: &Node, needed: bool, errors: &mut Errors) -> Option<Source> {
    let (claim, prefix, expression) = (at.at("claim"), at.at("prefix"), at.at("expression"));
    match (claim.str(), expression.str()) {
        ("", "") if needed => errors.required(at, NEITHER),
        ("", "") => {}
        ("", _) => {
            if prefix.exists() {
                errors.invalid(&prefix, "may not be specified when expression is set");
            }
            return compile(&expression, &Env::of_claims(), false, errors).map(Source::Expression);
        }
        (name, "") => {
            if !prefix.exists() {
                let detail =
                    "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.required(&prefix, detail);
            }
            return Some(Source::Claim { name: name.to_owned(), prefix: prefix.str().to_owned() });
        }
        _ => errors.invalid_value(&at.path, &Value::from(""), BOTH),
    }
    None
}

fn uid(at: &Node, errors: &mut Errors) -> Option<Source> {
    let expression = at.at("expression");
    match (at.text("claim"), expression.str()) {
        ("", "") => None,
        (name, "") => Some(Source::Claim { name: name.to_owned(), prefix: String::new() }),
        ("", _) => compile(&expression, &Env::of_claims(), false, errors).map(Source::Expression),
        _ => {
            errors.invalid_value(&at.path, &Value::from(""), BOTH);
            None
        }
    }
}

fn extra(list: &Node, errors: &mut Errors) -> Vec<(String, Expression)> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for one in list.items() {
        let (key, value) = (one.at("key"), one.at("valueExpression"));
        check_key(&key, errors);
        if !seen.insert(key.str()) {
            errors.duplicate(&key);
        } else if value.str().is_empty() {
            errors.required(&value, "");
        } else if let Some(expression) = compile(&value, &Env::of_claims(), false, errors) {
            found.push((key.str().to_owned(), expression));
        }
    }
    found
}

/// `example.org/role`, in lower case, of a domain that is not Kubernetes'.
fn check_key(at: &Node, errors: &mut Errors) {
    let key = at.str();
    let Some((domain, path)) = key.split_once('/') else {
        match key {
            "" => errors.required(at, ""),
            _ => errors.invalid(at, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        }
        return;
    };
    for problem in machinery::names::dns_subdomain(domain) {
        errors.invalid_value(&at.path, &Value::from(domain), problem);
    }
    if path.is_empty() {
        errors.invalid(at, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    }
    if key != key.to_lowercase() {
        errors.invalid(at, "must be lowercase");
    }
    let is_of = |root: &str| domain == root || domain.strip_suffix(root).is_some_and(|rest| rest.ends_with('.'));
    if is_of("kubernetes.io") || is_of("k8s.io") {
        errors.invalid(at, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use");
    }
}

fn compile(at: &Node, env: &Env, is_rule: bool, errors: &mut Errors) -> Option<Expression> {
    let text = at.str();
    match Program::check(text, env) {
        Err(why) => {
            errors.invalid(at, format!("compilation failed: {why}"));
            return None;
        }
        Ok(found) if is_rule && !found.is_bool() => {
            errors.invalid(at, "must evaluate to bool");
            return None;
        }
        Ok(_) => {}
    }
    let program = Program::parse(text).ok()?;
    Some(Expression { text: text.to_owned(), program })
}
