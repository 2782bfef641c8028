//! Terms as text, for logs.

use super::{Node, Term, Terms};
use std::fmt;

/// A term, written out to a limited depth.
pub struct Shown<'t> {
    terms: &'t Terms,
    term: Term,
    depth: u32,
}

/// So many operations inside each other are written.
const DEPTH: u32 = 8;

impl Terms {
    /// The term as text.
    #[must_use]
    pub fn show(&self, term: Term) -> Shown<'_> {
        Shown { terms: self, term, depth: DEPTH }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(depth) = self.depth.checked_sub(1) else { return f.write_str("...") };
        let terms = self.terms;
        let show = |term| Shown { terms, term, depth };
        let w = terms.width(self.term);
        match terms.node(self.term) {
            Node::Lit(value) => write!(f, "{value:#x}"),
            Node::Bool(truth) => write!(f, "{truth}"),
            Node::Var(var) => write!(f, "v{}:{w}", var.0),
            Node::Zext(a) => write!(f, "zext{w}({})", show(a)),
            Node::Sext(a) => write!(f, "sext{w}({})", show(a)),
            Node::Extract { low, of } => write!(f, "{}[{low}+{w}]", show(of)),
            Node::Concat(high, low) => write!(f, "{{{}, {}}}", show(high), show(low)),
            Node::Bin(op, a, b) => write!(f, "{op:?}({}, {})", show(a), show(b)),
            Node::Cmp(op, a, b) => write!(f, "{op:?}({}, {})", show(a), show(b)),
            Node::Not(a) => write!(f, "!{}", show(a)),
            node => {
                write!(f, "{}(", operation(node))?;
                let mut operands = Vec::new();
                terms.operands(self.term, |o| operands.push(o));
                for (n, operand) in operands.into_iter().enumerate() {
                    write!(f, "{}{}", if n > 0 { ", " } else { "" }, show(operand))?;
                }
                f.write_str(")")
            }
        }
    }
}

fn operation(node: Node) -> String {
    match node {
        Node::Un(op, _) => format!("{op:?}"),
        Node::Ite(..) => "if".to_owned(),
        Node::And(..) => "and".to_owned(),
        Node::Xor(..) => "xor".to_owned(),
        Node::Divide { part, .. } => format!("{part:?}"),
        Node::Opaque { op, part, .. } => format!("{op:?}.{part}"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86::domain::Bin;

    #[test]
    fn a_term_reads_like_a_formula() {
        let terms = Terms::new();
        let x = terms.fresh(32);
        let sum = terms.build_bin(Bin::Add, terms.build_zext(64, x), terms.lit_term(64, 16));
        assert_eq!(terms.show(sum).to_string(), "Add(zext64(v0:32), 0x10)");
        let deep = (0..20).fold(sum, |t, n| terms.build_bin(Bin::MulHiU, t, terms.lit_term(64, 3 + n)));
        assert!(terms.show(deep).to_string().contains("..."), "{}", terms.show(deep));
    }
}
