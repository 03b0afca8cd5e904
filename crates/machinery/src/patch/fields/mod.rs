//! Sets of field paths: which fields a manager owns. A set is a tree with sorted children; names are borrowed from
//! the objects and from the FieldsV1 text they came from, so that most sets are made without copying text.

mod compare;
mod element;
mod extract;
mod fresh;
mod json;
mod shape;
mod text;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

pub use compare::Comparison;
pub use compare::compare;
pub use extract::extract;
pub use fresh::fresh;
pub use json::FieldsError;
pub use json::{from_json, to_json};
pub use text::{from_text, look_through, to_value};

pub(super) use element::element;
pub(super) use shape::{Shape, shape};

use crate::schema::TypeRef;

/// One step of a path. The text of keys and values is compact JSON with sorted keys, as in FieldsV1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element<'a> {
    Field(Cow<'a, str>),
    Index(Cow<'a, str>),
    Key(Cow<'a, str>),
    Value(Cow<'a, str>),
}

impl Element<'_> {
    fn into_owned(self) -> Element<'static> {
        let owned = |text: Cow<str>| Cow::Owned(text.into_owned());
        match self {
            Element::Field(name) => Element::Field(owned(name)),
            Element::Index(index) => Element::Index(owned(index)),
            Element::Key(key) => Element::Key(owned(key)),
            Element::Value(value) => Element::Value(owned(value)),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set<'a> {
    /// Sorted by element; no node is empty.
    pub(super) nodes: Vec<Node<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<'a> {
    pub element: Element<'a>,
    /// Whether the path that ends here is in the set; the children are longer paths.
    pub member: bool,
    pub children: Set<'a>,
}

impl<'a> Set<'a> {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn into_owned(self) -> Set<'static> {
        let owned = |node: Node| Node {
            element: node.element.into_owned(),
            member: node.member,
            children: node.children.into_owned(),
        };
        Set { nodes: self.nodes.into_iter().map(owned).collect() }
    }

    pub fn union(self, other: Set<'a>) -> Set<'a> {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut out = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut right = other.nodes.into_iter().peekable();
        for node in self.nodes {
            while let Some(before) = right.next_if(|next| next.element < node.element) {
                out.push(before);
            }
            match right.next_if(|next| next.element == node.element) {
                Some(same) => out.push(Node {
                    member: node.member || same.member,
                    children: node.children.union(same.children),
                    element: node.element,
                }),
                None => out.push(node),
            }
        }
        out.extend(right);
        Set { nodes: out }
    }

    /// The paths that are not in the other set. Longer paths than those of the other stay.
    pub fn difference(mut self, other: &Set) -> Set<'a> {
        self.subtract(other, false);
        self
    }

    /// As `difference`, and what lies under a path of the other set goes too.
    pub(crate) fn recursive_difference(mut self, other: &Set) -> Set<'a> {
        self.subtract(other, true);
        self
    }

    /// In place: what stays, which is most, is not touched.
    fn subtract(&mut self, other: &Set, recursive: bool) {
        let mut right = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| match find(&mut right, &node.element) {
            None => true,
            Some(found) if recursive && found.member => false,
            Some(found) => {
                node.member &= !found.member;
                node.children.subtract(&found.children, recursive);
                node.member || !node.children.is_empty()
            }
        });
    }

    pub fn intersection(&self, other: &Set) -> Set<'a> {
        let mut right = other.nodes.iter().peekable();
        let mut out = Vec::new();
        for node in &self.nodes {
            if let Some(found) = find(&mut right, &node.element) {
                let children = node.children.intersection(&found.children);
                push(&mut out, node, node.member && found.member, children);
            }
        }
        Set { nodes: out }
    }

    pub(crate) fn intersects(&self, other: &Set) -> bool {
        let mut right = other.nodes.iter().peekable();
        self.nodes.iter().any(|node| {
            find(&mut right, &node.element)
                .is_some_and(|found| (node.member && found.member) || node.children.intersects(&found.children))
        })
    }

    /// How many paths there are.
    pub(crate) fn members(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.members()).sum()
    }

    /// Whether every path is in the other set too.
    pub(crate) fn is_within(&self, other: &Set) -> bool {
        let mut right = other.nodes.iter().peekable();
        self.nodes.iter().all(|node| {
            find(&mut right, &node.element)
                .is_some_and(|found| (found.member || !node.member) && node.children.is_within(&found.children))
        })
    }

    /// Only the paths that no other path of the set goes on from.
    pub fn leaves(&self) -> Set<'a> {
        let leaf = |node: &Node<'a>| Node {
            element: node.element.clone(),
            member: node.children.is_empty(),
            children: node.children.leaves(),
        };
        Set { nodes: self.nodes.iter().map(leaf).collect() }
    }

    /// Adds the named fields of structs on the way to each path, which sets leave out. Without it, taking away
    /// the last field of a struct would leave the struct behind. Map keys and list items are not added.
    pub(crate) fn ensure_named_fields(&self, ty: Option<TypeRef>) -> Set<'a> {
        let ensured = |node: &Node<'a>| {
            let (named, child) = shape::child(ty, &node.element);
            Node {
                element: node.element.clone(),
                member: node.member || named,
                children: node.children.ensure_named_fields(child),
            }
        };
        Set { nodes: self.nodes.iter().map(ensured).collect() }
    }

    /// Owners of parts of what has become one value in the schema own all of it. Says whether there were any.
    pub(crate) fn collapse_atomic(&mut self, ty: Option<TypeRef>) -> bool {
        let mut collapsed = false;
        for node in self.nodes.iter_mut().filter(|node| !node.children.is_empty()) {
            let Some(child) = shape::child(ty, &node.element).1 else { continue };
            if shape::is_atomic(child) {
                node.member = true;
                node.children = Set::default();
                collapsed = true;
            } else {
                collapsed |= node.children.collapse_atomic(Some(child));
            }
        }
        collapsed
    }

    /// The set of a few known field paths, such as `status` or `metadata.labels`.
    pub(crate) fn of_paths(paths: &[&'a str]) -> Set<'a> {
        let mut set = Set::default();
        for path in paths {
            let mut steps = path.rsplit('.');
            let node = |step: &'a str, member, children| Set {
                nodes: vec![Node { element: Element::Field(Cow::Borrowed(step)), member, children }],
            };
            let last = node(steps.next().unwrap_or_default(), true, Set::default());
            set = set.union(steps.fold(last, |children, step| node(step, false, children)));
        }
        set
    }

    /// Every path as text, shorter ones of a level first: `.spec.template.spec.containers[name="c"].image`.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths("", &mut out);
        out
    }

    fn collect_paths(&self, prefix: &str, out: &mut Vec<String>) {
        let members = self.nodes.iter().filter(|node| node.member);
        out.extend(members.map(|node| format!("{prefix}{}", node.element)));
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            node.children.collect_paths(&format!("{prefix}{}", node.element), out);
        }
    }

    pub(super) fn get(&self, element: &Element) -> Option<&Node<'a>> {
        let index = self.nodes.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.nodes[index])
    }

    /// Adds a node whose element comes after all others, unless it holds nothing.
    fn append(&mut self, element: &Element<'a>, member: bool, children: Set<'a>) {
        if member || !children.is_empty() {
            self.nodes.push(Node { element: element.clone(), member, children });
        }
    }
}

fn push<'a>(out: &mut Vec<Node<'a>>, node: &Node<'a>, member: bool, children: Set<'a>) {
    if member || !children.is_empty() {
        out.push(Node { element: node.element.clone(), member, children });
    }
}

/// Moves on to the element; both sides are sorted.
fn find<'s, 'a>(
    nodes: &mut std::iter::Peekable<std::slice::Iter<'s, Node<'a>>>,
    element: &Element,
) -> Option<&'s Node<'a>> {
    while let Some(next) = nodes.peek() {
        match next.element.cmp(element) {
            Ordering::Less => nodes.next(),
            Ordering::Equal => return nodes.next(),
            Ordering::Greater => return None,
        };
    }
    None
}

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Index(index) => write!(f, "[{index}]"),
            Element::Value(value) => write!(f, "[={value}]"),
            Element::Key(key) => {
                f.write_str("[")?;
                let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(key).unwrap_or_default();
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if index > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests;
