//! The syntax tree of an expression. Each node knows the place that messages about it point at.

/// A part of an expression.
#[derive(Debug)]
pub(super) struct Node {
    /// Where messages point: an operator, a dot, an opening bracket, or the first letter of a name or literal.
    pub at: usize,
    /// How deep the tree below it is.
    pub depth: usize,
    /// The same value whenever it is evaluated, so it costs nothing: a literal, a list or map of such, or a conversion of
    /// one.
    pub is_constant: bool,
    pub expr: Expr,
}

#[derive(Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Name(Box<str>),
    Select(Box<Node>, Box<str>),
    /// `a.?b`: an optional of the field.
    SelectOptional(Box<Node>, Box<str>),
    Has(Box<Node>, Box<str>),
    Index(Box<Node>, Box<Node>),
    IndexOptional(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Minus(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Choice(Box<Node>, Box<Node>, Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    /// Entries that begin with `?` are left out where they are none.
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    /// `Object.spec{replicas: 1}`: a value of a named type.
    Struct(Box<str>, Vec<Field>),
    Call(Option<Box<Node>>, Box<str>, Vec<Node>),
    Macro(Macro, Box<Node>, Vec<Box<str>>, Vec<Node>),
    /// `cel.bind(name, value, body)`.
    Bind(Bound, Box<Node>, Box<Node>),
}

/// The name that `cel.bind` gives a value.
#[derive(Debug)]
pub(super) struct Bound {
    pub name: Box<str>,
    pub at: usize,
    /// The place of `cel`.
    pub cel_at: usize,
}

/// A field of a value of a named type.
#[derive(Debug)]
pub(super) struct Field {
    /// The place of its colon.
    pub at: usize,
    pub name: Box<str>,
    pub value: Node,
    pub optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
}

impl Node {
    pub fn new(at: usize, expr: Expr) -> Node {
        let (mut depth, mut all_constant) = (0, true);
        expr.each_child(&mut |child| {
            depth = depth.max(child.depth);
            all_constant &= child.is_constant;
        });
        let is_constant = all_constant && expr.keeps_constant();
        // Names and literals are no level of their own, as upstream counts.
        let depth = depth + usize::from(!expr.is_leaf());
        Node { at, depth, is_constant, expr }
    }

    /// Whether it is a variable, or something that is reached from another value: these cost by the way to them.
    pub fn is_attribute(&self) -> bool {
        matches!(
            self.expr,
            Expr::Name(_)
                | Expr::Select(..)
                | Expr::SelectOptional(..)
                | Expr::Index(..)
                | Expr::IndexOptional(..)
                | Expr::Choice(..)
        )
    }

    /// Whether this node or one below it is such a one.
    pub fn any(&self, is_such: &dyn Fn(&Node) -> bool) -> bool {
        if is_such(self) {
            return true;
        }
        let mut found = false;
        self.expr.each_child(&mut |child| found = found || child.any(is_such));
        found
    }

    /// Whether the expression names that variable anywhere.
    pub fn mentions(&self, wanted: &str) -> bool {
        self.any(&|node| matches!(&node.expr, Expr::Name(name) if &**name == wanted))
    }

    /// Whether the expression reads that field of that variable anywhere, plainly or as an optional.
    pub fn selects(&self, variable: &str, wanted: &str) -> bool {
        self.any(&|node| match &node.expr {
            Expr::Select(of, field) | Expr::SelectOptional(of, field) | Expr::Has(of, field) => {
                &**field == wanted && matches!(&of.expr, Expr::Name(name) if &**name == variable)
            }
            _ => false,
        })
    }

    /// The name that a chain of fields begins with.
    pub fn root_name(&self) -> Option<&str> {
        match &self.expr {
            Expr::Name(name) => Some(name),
            Expr::Select(of, _) => of.root_name(),
            _ => None,
        }
    }

    /// `Object.spec` as the name of a type, variable or function.
    pub fn qualified(&self) -> Option<String> {
        match &self.expr {
            Expr::Name(name) => Some(name.to_string()),
            Expr::Select(of, field) => Some(format!("{}.{field}", of.qualified()?)),
            _ => None,
        }
    }
}

/// Functions that make a constant of a constant.
const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

impl Expr {
    fn is_leaf(&self) -> bool {
        matches!(
            self,
            Expr::Null
                | Expr::Bool(_)
                | Expr::Int(_)
                | Expr::Uint(_)
                | Expr::Double(_)
                | Expr::Text(_)
                | Expr::Bytes(_)
                | Expr::Name(_)
        )
    }

    /// Whether it is constant where its parts are.
    fn keeps_constant(&self) -> bool {
        match self {
            Expr::Name(_) => false,
            leaf if leaf.is_leaf() => true,
            Expr::List(items) => items.iter().all(|(_, optional)| !optional),
            Expr::Map(entries) => entries.iter().all(|(_, _, optional)| !optional),
            Expr::Call(None, name, arguments) => arguments.len() == 1 && CONVERSIONS.contains(&&**name),
            _ => false,
        }
    }

    pub fn each_child<'n>(&'n self, visit: &mut dyn FnMut(&'n Node)) {
        match self {
            Expr::Null | Expr::Bool(_) | Expr::Int(_) | Expr::Uint(_) | Expr::Double(_) => {}
            Expr::Text(_) | Expr::Bytes(_) | Expr::Name(_) => {}
            Expr::Select(of, _) | Expr::SelectOptional(of, _) | Expr::Has(of, _) => visit(of),
            Expr::Not(of) | Expr::Minus(of) => visit(of),
            Expr::Index(a, b) | Expr::IndexOptional(a, b) | Expr::And(a, b) | Expr::Or(a, b) => {
                visit(a);
                visit(b);
            }
            Expr::Binary(_, a, b) | Expr::Bind(_, a, b) => {
                visit(a);
                visit(b);
            }
            Expr::Choice(a, b, c) => {
                visit(a);
                visit(b);
                visit(c);
            }
            Expr::List(items) => items.iter().for_each(|(item, _)| visit(item)),
            Expr::Map(entries) => entries.iter().for_each(|(key, value, _)| {
                visit(key);
                visit(value);
            }),
            Expr::Struct(_, fields) => fields.iter().for_each(|field| visit(&field.value)),
            Expr::Call(target, _, arguments) => {
                target.as_deref().into_iter().for_each(&mut *visit);
                arguments.iter().for_each(visit);
            }
            Expr::Macro(_, target, _, bodies) => {
                visit(target);
                bodies.iter().for_each(visit);
            }
        }
    }
}
