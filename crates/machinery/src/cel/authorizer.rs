//! `authorizer`: whether the one who asks, or a service account, might do something else too. What is asked is put
//! together here; whoever evaluates brings the answer.

use std::fmt;
use std::rc::Rc;

use super::EvalError;
use super::value::Val;

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// Who knows what is allowed.
pub trait Oracle {
    fn ask(&self, asked: &Asked) -> Verdict;
}

/// What `check` asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Namespace and name of a service account; whoever made the request otherwise.
    pub account: Option<(String, String)>,
    pub path: Option<String>,
    pub group: Option<String>,
    pub resource: Option<String>,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
    pub verb: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// A question that is not asked yet.
#[derive(Clone)]
pub struct Asking<'a> {
    oracle: &'a dyn Oracle,
    pub asked: Asked,
    /// What `authorizer.requestResource` stands for.
    request: Option<Rc<Asked>>,
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.asked.fmt(f)
    }
}

impl<'a> Val<'a> {
    /// The variable `authorizer`; `request` is the resource of the request itself.
    pub fn authorizer(oracle: &'a dyn Oracle, request: Asked) -> Val<'a> {
        Val::Asking(Rc::new(Asking { oracle, asked: Asked::default(), request: Some(Rc::new(request)) }))
    }
}

/// `authorizer.requestResource`.
pub(super) fn request_resource<'a>(asking: &Asking<'a>) -> Option<Val<'a>> {
    let asked = Asked::clone(asking.request.as_ref()?);
    Some(Val::Asking(Rc::new(Asking { oracle: asking.oracle, asked, request: None })))
}

pub(super) fn member<'a>(asking: &Asking<'a>, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    let texts: Option<Vec<&str>> = values
        .iter()
        .map(|value| match value {
            Val::Text(text) => Some(text.as_ref()),
            _ => None,
        })
        .collect();
    let mut next = asking.clone();
    let asked = &mut next.asked;
    let (is_resource, is_plain) = (asked.resource.is_some(), asked.group.is_none() && asked.path.is_none());
    match (name, texts?.as_slice()) {
        ("path", [path]) if is_plain => asked.path = Some(path.to_string()),
        ("group", [group]) if is_plain => asked.group = Some(group.to_string()),
        ("serviceAccount", [namespace, name]) if is_plain => {
            asked.account = Some((namespace.to_string(), name.to_string()));
        }
        ("resource", [resource]) if asked.group.is_some() && !is_resource => {
            asked.resource = Some(resource.to_string())
        }
        ("subresource", [text]) if is_resource => asked.subresource = text.to_string(),
        ("namespace", [text]) if is_resource => asked.namespace = text.to_string(),
        ("name", [text]) if is_resource => asked.name = text.to_string(),
        ("fieldSelector", [text]) if is_resource => asked.field_selector = text.to_string(),
        ("labelSelector", [text]) if is_resource => asked.label_selector = text.to_string(),
        ("check", [verb]) if is_resource || asked.path.is_some() => {
            asked.verb = verb.to_string();
            return Some(Ok(Val::Verdict(Rc::new(asking.oracle.ask(asked)))));
        }
        _ => return None,
    }
    Some(Ok(Val::Asking(Rc::new(next))))
}

pub(super) fn verdict<'a>(verdict: &Verdict, name: &str, values: &[Val<'a>]) -> Option<Outcome<'a>> {
    Some(Ok(match (name, values) {
        ("allowed", []) => Val::Bool(verdict.allowed),
        ("reason", []) => Val::text(verdict.reason.clone()),
        ("errored", []) => Val::Bool(verdict.error.is_some()),
        ("error", []) => Val::text(verdict.error.clone().unwrap_or_default()),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::Program;
    use super::*;

    struct Echo;

    impl Oracle for Echo {
        fn ask(&self, asked: &Asked) -> Verdict {
            Verdict { allowed: asked.verb == "get", reason: format!("{asked:?}"), error: None }
        }
    }

    fn check(text: &str, expected: bool) {
        let request = Asked { group: Some("".into()), resource: Some("pods".into()), ..Asked::default() };
        let variables = [("authorizer", Val::authorizer(&Echo, request))];
        let found = Program::parse(text).unwrap().eval(&variables, &mut 1_000_000);
        assert!(matches!(found, Ok(Val::Bool(value)) if value == expected), "{text}: {found:?}");
    }

    #[test]
    fn questions_are_put_together_and_asked() {
        check("authorizer.path('/healthz').check('get').allowed()", true);
        check("authorizer.group('apps').resource('deployments').check('delete').allowed()", false);
        check("authorizer.requestResource.check('get').reason().contains('\"pods\"')", true);
        check(
            "authorizer.serviceAccount('n', 'a').group('').resource('x').subresource('s').check('get').reason().contains('(\"n\", \"a\")')",
            true,
        );
        check("authorizer.group('').resource('x').namespace('n').name('m').check('get').errored()", false);
    }

    #[test]
    fn what_cannot_be_asked_is_an_error() {
        for text in
            ["authorizer.check('get')", "authorizer.path('/').resource('x')", "authorizer.group('').check('get')"]
        {
            let variables = [("authorizer", Val::authorizer(&Echo, Asked::default()))];
            assert!(Program::parse(text).unwrap().eval(&variables, &mut 1_000_000).is_err(), "{text}");
        }
    }
}
