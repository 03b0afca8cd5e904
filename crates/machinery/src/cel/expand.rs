//! Calls that are macros: the first arguments name variables, and the others are evaluated with these.

use super::ast::{Bound, Expr, Macro, Node};
use super::error::{Issue, Problem};

/// Names of the variable that loops gather their result in.
const ACCUMULATORS: &[&str] = &["__result__", "@result"];

pub(super) fn global_call(at: usize, name: Box<str>, mut arguments: Vec<Node>, issues: &mut Vec<Issue>) -> Node {
    if &*name != "has" || arguments.len() != 1 {
        return Node::new(at, Expr::Call(None, name, arguments));
    }
    match arguments.pop() {
        Some(Node { expr: Expr::Select(of, field), .. }) => Node::new(at, Expr::Has(of, field)),
        other => {
            issues.push(Issue::new(other.map_or(at, |node| node.at), Problem::Has));
            Node::new(at, Expr::Null)
        }
    }
}

pub(super) fn member_call(
    at: usize,
    target: Node,
    name: Box<str>,
    mut arguments: Vec<Node>,
    issues: &mut Vec<Issue>,
) -> Node {
    if let (Expr::Name(namespace), "bind", 3) = (&target.expr, &*name, arguments.len())
        && &**namespace == "cel"
    {
        return bind(at, target.at, arguments, issues);
    }
    let Some((kind, count)) = kind_of(&name, arguments.len()) else {
        return Node::new(at, Expr::Call(Some(target.into()), name, arguments));
    };
    if kind == Macro::SortBy && !can_be_sorted(&target) {
        issues.push(Issue::new(target.at, Problem::SortBy));
    }
    let bodies = arguments.split_off(count);
    let mut variables: Vec<Box<str>> = Vec::new();
    for argument in arguments {
        let place = argument.at;
        match variable(kind, count, argument) {
            Ok(name) if ACCUMULATORS.contains(&&*name) => issues.push(Issue::new(place, Problem::Accumulator)),
            Ok(name) if variables.contains(&name) => {
                issues.push(Issue::new(place, Problem::DuplicateVariable(name.into())));
            }
            Ok(name) => variables.push(name),
            Err(problem) => issues.push(Issue::new(place, problem)),
        }
    }
    Node::new(at, Expr::Macro(kind, target.into(), variables, bodies))
}

/// The macro of that name with so many arguments, and how many of these are variables.
fn kind_of(name: &str, count: usize) -> Option<(Macro, usize)> {
    Some(match (name, count) {
        ("all", 2 | 3) => (Macro::All, count - 1),
        ("exists", 2 | 3) => (Macro::Exists, count - 1),
        ("exists_one" | "existsOne", 2 | 3) => (Macro::ExistsOne, count - 1),
        ("filter", 2) => (Macro::Filter, 1),
        ("map", 2 | 3) => (Macro::Map, 1),
        ("transformList", 3 | 4) => (Macro::TransformList, 2),
        ("transformMap", 3 | 4) => (Macro::TransformMap, 2),
        ("transformMapEntry", 3 | 4) => (Macro::TransformMapEntry, 2),
        ("optMap", 2) => (Macro::OptMap, 1),
        ("optFlatMap", 2) => (Macro::OptFlatMap, 1),
        ("sortBy", 2) => (Macro::SortBy, 1),
        _ => return None,
    })
}

fn variable(kind: Macro, count: usize, argument: Node) -> Result<Box<str>, Problem> {
    match (argument.expr, kind) {
        (Expr::Name(name), _) => Ok(name),
        (_, Macro::Map | Macro::Filter | Macro::SortBy) if count == 1 => Err(Problem::NotIdentifier),
        (_, Macro::OptMap) => Err(Problem::OptionalVariable("optMap")),
        (_, Macro::OptFlatMap) => Err(Problem::OptionalVariable("optFlatMap")),
        _ => Err(Problem::NotSimple),
    }
}

/// Literals that are no lists cannot be.
fn can_be_sorted(target: &Node) -> bool {
    !matches!(
        target.expr,
        Expr::Null
            | Expr::Bool(_)
            | Expr::Int(_)
            | Expr::Uint(_)
            | Expr::Double(_)
            | Expr::Text(_)
            | Expr::Bytes(_)
            | Expr::Map(_)
            | Expr::Struct(..)
    )
}

fn bind(at: usize, cel_at: usize, mut arguments: Vec<Node>, issues: &mut Vec<Issue>) -> Node {
    let (body, value) = (arguments.pop(), arguments.pop());
    match (arguments.pop(), value, body) {
        (Some(Node { expr: Expr::Name(name), at: name_at, .. }), Some(value), Some(body)) => {
            Node::new(at, Expr::Bind(Bound { name, at: name_at, cel_at }, value.into(), body.into()))
        }
        (name, ..) => {
            issues.push(Issue::new(name.map_or(at, |name| name.at), Problem::Bind));
            Node::new(at, Expr::Null)
        }
    }
}
