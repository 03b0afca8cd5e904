//! Go templates, as far as people use them with kubectl: fields, variables, pipelines, `if`, `with`, `range`, and Go's
//! functions with the two that kubectl adds.

mod functions;
mod parse;
mod run;

use serde_json::Value;

pub(super) use parse::Template;

/// Why a template is not one, or why it cannot be run on an object. The sentences are upstream's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("template: output:1: unexpected {{{{{0}}}}}")]
    Unexpected(String),
    #[error("template: output:1: unexpected {0:?} in command")]
    UnexpectedInCommand(String),
    #[error("template: output:1: unexpected EOF")]
    UnexpectedEnd,
    #[error("template: output:1: unclosed action")]
    UnclosedAction,
    #[error("template: output:1: unclosed left paren")]
    UnclosedParen,
    #[error("template: output:1: missing value for command")]
    MissingValue,
    #[error("template: output:1: unterminated quoted string")]
    UnterminatedString,
    #[error(transparent)]
    Escape(#[from] serde_json::Error),
    #[error("template: output:1: function {0:?} not defined")]
    UnknownFunction(String),
    #[error("function {0:?} not defined")]
    NoFunction(String),
    #[error("template {0:?} not defined")]
    NoTemplate(String),
    #[error("undefined variable {0:?}")]
    NoVariable(String),
    #[error("exceeded maximum template depth")]
    TooDeep,
    #[error("range can't iterate over {0}")]
    NotIterable(String),
    #[error("can't give argument to non-function")]
    NotAFunction,
    #[error("nil pointer evaluating interface {{}}.{0}")]
    Nil(String),
    #[error("can't evaluate field {name} in type {kind}")]
    NoField { name: String, kind: &'static str },
    #[error("template: output:{line}:{column}: executing \"output\" at <{word}>: map has no entry for key {key:?}")]
    NoKey { line: usize, column: usize, word: String, key: String },
    #[error("error calling {function}: {error}")]
    Call { function: String, error: CallError },
}

/// What a function does not take.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("len of {0}")]
    LengthOf(&'static str),
    #[error("index of untyped nil")]
    IndexOfNil,
    #[error("index out of range: {0}")]
    IndexOutOfRange(usize),
    #[error("cannot index this value")]
    NoIndex,
    #[error("index out of range")]
    OutOfRange,
    #[error("cannot slice this value")]
    NoSlice,
    #[error("base64 decode failed: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("incompatible types for comparison")]
    Incompatible,
}

impl Template {
    pub(crate) fn print(&self, object: &Value) -> Result<String, Error> {
        run::run(self, object)
    }

    pub(crate) fn strict(self, strict: bool) -> Template {
        Template { strict, ..self }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_print_as_gos() {
        let object = json!({"name": "a", "n": 2, "yes": true, "f": 1.5, "list": ["x", "y"], "map": {"k": "v", "b": "w"}, "data": "aGk="});
        let check = |template: &str, expected: &str| {
            let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.print(&object).as_deref().map_err(|_| ()), Ok(expected), "{template}");
        };
        check("{{.name}}-{{.n}}", "a-2");
        check("{{range .list}}{{.}} {{end}}", "x y ");
        check("{{range $i, $e := .list}}{{$i}}={{$e}};{{end}}", "0=x;1=y;");
        check("{{range $k, $v := .map}}{{$k}}={{$v}};{{end}}", "b=w;k=v;");
        check("{{range .none}}x{{else}}empty{{end}}", "empty");
        check("{{if .yes}}1{{else}}2{{end}}{{if .none}}1{{else if eq .n 2}}two{{end}}", "1two");
        check("{{len .list}} {{index .list 1}} {{index .map \"k\"}}", "2 y v");
        check("{{with .map}}{{.k}}{{$.name}}{{end}}", "va");
        check("{{.data | base64decode}}", "hi");
        check("{{printf \"%s/%d %v %q\" .name .n .yes .name}}", "a/2 true \"a\"");
        check("{{and .yes (not .none)}} {{or .none \"x\"}}", "true x");
        check("{{$x := .n}}{{if gt $x 1}}big{{end}}", "big");
        check("a {{- /* nothing */ -}} b", "ab");
        check("{{\"quoted\\n\"}}{{`raw`}}{{.f}}", "quoted\nraw1.5");
        check("{{.missing}}", "<no value>");
        check("{{.map}} {{.list}}", "map[b:w k:v] [x y]");
        check("{{if exists . \"map\" \"k\"}}there{{end}}", "there");
        check("{{range .list}}{{if eq . \"y\"}}{{break}}{{end}}{{.}}{{end}}", "x");
        assert!(Template::parse("{{if .x}}").is_err());
        assert!(Template::parse("{{nothing .x}}").is_err());
    }
}
