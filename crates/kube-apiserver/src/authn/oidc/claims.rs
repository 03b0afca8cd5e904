//! From the claims of a verified token to a user: by names of claims, or by expressions. Pure.

use std::collections::BTreeMap;

use machinery::cel::{EvalError, Program, Val};
use serde_json::{Map, Value, json};

use super::super::{CREDENTIAL_ID, User};

/// Where a value comes from.
#[derive(Debug)]
pub enum Source {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

#[derive(Debug)]
pub struct Expression {
    pub text: String,
    pub program: Program,
}

/// An expression that must be true, and what is said where it is not.
#[derive(Debug)]
pub struct Rule {
    pub expression: Expression,
    pub message: String,
}

#[derive(Debug)]
pub struct Mapping {
    pub username: Source,
    pub groups: Option<Source>,
    pub uid: Option<Source>,
    pub extra: Vec<(String, Expression)>,
    /// Claims that must be there with that value.
    pub required: BTreeMap<String, String>,
    pub claim_rules: Vec<Rule>,
    pub user_rules: Vec<Rule>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ClaimsError {
    #[error("oidc: parse username claims {0:?}: {1}")]
    Username(String, &'static str),
    #[error("oidc: email not verified")]
    EmailNotVerified,
    #[error("oidc: parse 'email_verified' claim: it is not true or false")]
    EmailVerified,
    #[error("oidc: empty username via CEL expression is not allowed")]
    EmptyUsername,
    #[error("oidc: error evaluating {0} claim expression: {1}")]
    Expression(&'static str, EvalError),
    #[error("oidc: error evaluating {0} claim expression: {0} claim expression must return a string")]
    NotText(&'static str),
    #[error("oidc: error evaluating {0} claim expression: expression must return a string or a list of strings")]
    NotTexts(&'static str),
    #[error("oidc: parse groups claim {0:?}: it is neither a string nor a list of strings")]
    Groups(String),
    #[error("oidc: parse uid claim {0:?}: {1}")]
    Uid(String, &'static str),
    #[error("oidc: required claim {0} not present in ID token")]
    Missing(String),
    #[error("oidc: parse claim {0}: it is not a string")]
    NotAString(String),
    #[error("oidc: required claim {0} value does not match")]
    Different(String),
    #[error("oidc: error evaluating {what} expression: validation expression '{text}' failed: {message}")]
    Refused { what: &'static str, text: String, message: String },
    #[error("oidc: error evaluating {what} expression: expression '{text}' resulted in error: {error}")]
    Rule { what: &'static str, text: String, error: EvalError },
    #[error("oidc: could not expand distributed claims: knarr does not fetch claims from other places")]
    Distributed,
}

impl Mapping {
    pub fn user(&self, claims: &Value) -> Result<User, ClaimsError> {
        let object = claims.as_object();
        let none = Map::new();
        let all = object.unwrap_or(&none);
        let mut user = User { name: self.username(claims, all)?, ..User::default() };
        user.groups = self.groups(claims, all)?;
        user.uid = self.uid(claims, all)?;
        if let Some(id) = all.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            user.extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let values = texts("extra", &expression.eval("extra", "claims", claims)?)?;
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        for (claim, wanted) in &self.required {
            let found = all.get(claim).ok_or_else(|| ClaimsError::Missing(claim.clone()))?;
            let found = found.as_str().ok_or_else(|| ClaimsError::NotAString(claim.clone()))?;
            if found != wanted {
                return Err(ClaimsError::Different(claim.clone()));
            }
        }
        hold(&self.claim_rules, "claim validation", "claims", claims)?;
        if !self.user_rules.is_empty() {
            let shown = json!({
                "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            });
            hold(&self.user_rules, "user info validation", "user", &shown)?;
        }
        Ok(user)
    }

    fn username(&self, claims: &Value, all: &Map<String, Value>) -> Result<String, ClaimsError> {
        let (name, prefix) = match &self.username {
            Source::Claim { name, prefix } => (name, prefix),
            Source::Expression(expression) => {
                let Val::Text(text) = expression.eval("username", "claims", claims)? else {
                    return Err(ClaimsError::NotText("username"));
                };
                return if text.is_empty() { Err(ClaimsError::EmptyUsername) } else { Ok(text.into_owned()) };
            }
        };
        let found = all.get(name).ok_or_else(|| ClaimsError::Username(name.clone(), "claim not present"))?;
        let found = found.as_str().ok_or_else(|| ClaimsError::Username(name.clone(), "it is not a string"))?;
        if name == "email" {
            match all.get("email_verified") {
                None | Some(Value::Bool(true)) => {}
                Some(Value::Bool(false)) => return Err(ClaimsError::EmailNotVerified),
                Some(_) => return Err(ClaimsError::EmailVerified),
            }
        }
        Ok(format!("{prefix}{found}"))
    }

    fn groups(&self, claims: &Value, all: &Map<String, Value>) -> Result<Vec<String>, ClaimsError> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Source::Expression(expression)) => texts("groups", &expression.eval("groups", "claims", claims)?),
            Some(Source::Claim { name, prefix }) => {
                let wrong = || ClaimsError::Groups(name.clone());
                let found: Vec<&str> = match all.get(name) {
                    // Upstream would fetch them from another place; a token without its groups is not the same user.
                    None if all.get("_claim_names").is_some_and(|names| names.get(name).is_some()) => {
                        return Err(ClaimsError::Distributed);
                    }
                    None => return Ok(Vec::new()),
                    Some(Value::String(one)) => vec![one],
                    Some(Value::Array(several)) => {
                        several.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?
                    }
                    Some(_) => return Err(wrong()),
                };
                Ok(found.into_iter().map(|group| format!("{prefix}{group}")).collect())
            }
        }
    }

    fn uid(&self, claims: &Value, all: &Map<String, Value>) -> Result<String, ClaimsError> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Source::Expression(expression)) => match expression.eval("uid", "claims", claims)? {
                Val::Text(text) => Ok(text.into_owned()),
                _ => Err(ClaimsError::NotText("uid")),
            },
            Some(Source::Claim { name, .. }) => {
                let found = all.get(name).ok_or_else(|| ClaimsError::Uid(name.clone(), "claim not present"))?;
                let found = found.as_str().ok_or_else(|| ClaimsError::Uid(name.clone(), "it is not a string"))?;
                Ok(found.to_owned())
            }
        }
    }
}

impl Expression {
    fn eval<'a>(&self, what: &'static str, name: &str, value: &'a Value) -> Result<Val<'a>, ClaimsError> {
        self.run(name, value).map_err(|error| ClaimsError::Expression(what, error))
    }

    fn run<'a>(&self, name: &str, value: &'a Value) -> Result<Val<'a>, EvalError> {
        let mut budget = machinery::cel::EXPRESSION_COST_MAX;
        self.program.eval(&[(name, Val::json(value, None))], &mut budget)
    }
}

fn hold(rules: &[Rule], what: &'static str, name: &str, value: &Value) -> Result<(), ClaimsError> {
    for Rule { expression, message } in rules {
        let text = || expression.text.clone();
        match expression.run(name, value) {
            Ok(Val::Bool(true)) => {}
            Ok(_) => return Err(ClaimsError::Refused { what, text: text(), message: message.clone() }),
            Err(error) => return Err(ClaimsError::Rule { what, text: text(), error }),
        }
    }
    Ok(())
}

/// One text or several; empty ones do not count.
fn texts(what: &'static str, value: &Val) -> Result<Vec<String>, ClaimsError> {
    let one = |value: &Val| match value {
        Val::Text(text) => Ok(text.to_string()),
        _ => Err(ClaimsError::NotTexts(what)),
    };
    let found: Vec<String> = match (value, value.items()) {
        (Val::Null, _) => Vec::new(),
        (_, Some(items)) => items.iter().map(one).collect::<Result<_, _>>()?,
        (value, None) => vec![one(value)?],
    };
    Ok(found.into_iter().filter(|text| !text.is_empty()).collect())
}
