//! Plain expressions over values: `name`, `a.b`, `a->b`, `*p`, `&x`, `a[3]`, `$rax`, numbers, comparisons, `&&`, `||`, `+`, `-`.
//!
//! Example: `node->key > 2 && node->next != 0` is read by precedence, the innermost first; each name is looked up in the frame's function,
//! then in `*this`, then among global names. There are no casts, calls or assignments.

use super::types::{Shape, Type};
use super::value::{Place, Value};
use super::{Function, Variable, World};
use x86::op::Gpr;

/// Brackets in each other.
const DEEPEST: usize = 64;

/// Words that begin a cast or a sizeof.
const TYPES: [&str; 14] = [
    "sizeof", "char", "short", "int", "long", "unsigned", "signed", "float", "double", "void", "struct",
    "union", "enum", "const",
];

/// The value of an expression, in a frame and the function of the source that is shown of it.
pub(crate) fn evaluate(
    world: &dyn World,
    frame: usize,
    function: Option<&Function>,
    text: &str,
) -> Result<Value, String> {
    let mut parser = Parser { world, frame, function, rest: text, depth: 0 };
    let value = parser.either()?;
    match parser.rest.trim_start() {
        "" => Ok(value),
        rest => Err(format!(
            "`{rest}` is not understood: there are names, . -> * & [] == != < > && || + - and numbers"
        )),
    }
}

/// Whether an expression's value is not zero.
pub(crate) fn is_true(
    world: &dyn World,
    frame: usize,
    function: Option<&Function>,
    text: &str,
) -> Result<bool, String> {
    Ok(evaluate(world, frame, function, text)?.referred(world)?.integer(world)? != 0)
}

/// A number as expressions have it.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// What is left to read.
struct Parser<'a> {
    world: &'a dyn World,
    frame: usize,
    function: Option<&'a Function>,
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn takes(&mut self, sign: &str) -> bool {
        match self.rest.trim_start().strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn integer(&self, value: &Value) -> Result<i128, String> {
        value.referred(self.world)?.integer(self.world)
    }

    fn either(&mut self) -> Result<Value, String> {
        let mut left = self.both()?;
        while self.takes("||") {
            let right = self.both()?;
            left = truth(self.integer(&left)? != 0 || self.integer(&right)? != 0);
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Value, String> {
        let mut left = self.comparison()?;
        while self.takes("&&") {
            let right = self.comparison()?;
            left = truth(self.integer(&left)? != 0 && self.integer(&right)? != 0);
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Value, String> {
        let left = self.sum()?;
        // The longer signs first.
        let Some(sign) = ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|sign| self.takes(sign)) else {
            return Ok(left);
        };
        let right = self.sum()?;
        let order = self.order(&left, &right)?;
        Ok(truth(match sign {
            "==" => order.is_eq(),
            "!=" => order.is_ne(),
            "<=" => order.is_le(),
            ">=" => order.is_ge(),
            "<" => order.is_lt(),
            _ => order.is_gt(),
        }))
    }

    /// Whole numbers are compared as such, an enumeration's name with its number.
    fn order(&self, left: &Value, right: &Value) -> Result<std::cmp::Ordering, String> {
        Ok(self.integer(left)?.cmp(&self.integer(right)?))
    }

    fn sum(&mut self) -> Result<Value, String> {
        let mut left = self.unary()?;
        loop {
            let minus = match () {
                () if self.takes("+") => false,
                // Behind a sum there is no `->`: that belongs to what precedes it.
                () if self.takes("-") => true,
                () => return Ok(left),
            };
            let right = self.unary()?;
            let n = self.integer(&right)?;
            let n = if minus { n.checked_neg().ok_or("the number is too large")? } else { n };
            left = match left.ty.shape() {
                Shape::Pointer { reference: false, .. } | Shape::Array { .. } => {
                    left.element(self.world, n)?.pointer()?
                }
                _ => {
                    let sum = self.integer(&left)?.checked_add(n).ok_or("the sum is too large")?;
                    Value::number(sum, true)
                }
            };
        }
    }

    fn unary(&mut self) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("too many brackets and signs within each other".to_owned());
        }
        let value = match () {
            () if self.takes("*") => self.unary()?.referred(self.world)?.target(self.world)?,
            () if self.takes("&") => self.unary()?.referred(self.world)?.pointer()?,
            () if self.takes("-") => {
                let of = self.unary()?;
                let number = self.integer(&of)?;
                Value::number(number.checked_neg().ok_or("the number is too large")?, true)
            }
            () if self.takes("!") => {
                let of = self.unary()?;
                truth(self.integer(&of)? == 0)
            }
            () => self.postfix()?,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn postfix(&mut self) -> Result<Value, String> {
        let mut value = self.primary()?;
        loop {
            value = match () {
                () if self.takes("->") => {
                    let name = self.word()?;
                    let pointer = value.referred(self.world)?;
                    pointer.target(self.world)?.member(self.world, name)?
                }
                () if self.takes(".") => {
                    let name = self.word()?;
                    value.member(self.world, name)?
                }
                () if self.takes("[") => {
                    let n = self.either()?;
                    if !self.takes("]") {
                        return Err("`]` is missing".to_owned());
                    }
                    let n = self.integer(&n)?;
                    value.referred(self.world)?.element(self.world, n)?
                }
                () => return Ok(value),
            };
        }
    }

    fn primary(&mut self) -> Result<Value, String> {
        if self.takes("(") {
            let value = self.either()?;
            return if self.takes(")") { Ok(value) } else { Err("`)` is missing".to_owned()) };
        }
        if self.takes("'") {
            return self.character();
        }
        if self.takes("$") {
            let name = self.word()?;
            return self.register(name);
        }
        let word = self.word()?;
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
            let found = number(digits).ok_or_else(|| format!("`{word}` is no number"))?;
            return Ok(Value::number(i128::from(found), !word.starts_with("0x")));
        }
        match word {
            "true" => Ok(truth(true)),
            "false" | "NULL" | "nullptr" => Ok(truth(false)),
            name => self.name(name),
        }
    }

    fn character(&mut self) -> Result<Value, String> {
        let mut letters = self.rest.chars();
        let number = match letters.next() {
            Some('\\') => match letters.next() {
                Some('n') => 10,
                Some('t') => 9,
                Some('r') => 13,
                Some('0') => 0,
                Some(other) => u32::from(other),
                None => return Err("a character is cut off".to_owned()),
            },
            Some(other) => u32::from(other),
            None => return Err("a character is cut off".to_owned()),
        };
        self.rest = letters.as_str();
        if self.takes("'") {
            Ok(Value::number(i128::from(number), true))
        } else {
            Err("`'` is missing".to_owned())
        }
    }

    /// A name, with `::`.
    fn word(&mut self) -> Result<&'a str, String> {
        let rest = self.rest.trim_start();
        let mut end = 0;
        while let Some(next) = rest[end..].chars().next() {
            match next {
                next if next.is_alphanumeric() || next == '_' => end += next.len_utf8(),
                ':' if rest[end..].starts_with("::") => end += 2,
                _ => break,
            }
        }
        let (word, after) = rest.split_at(end);
        self.rest = after;
        match (word, after) {
            ("", "") => Err("a name or number is missing at the end".to_owned()),
            ("", _) => Err(format!("a name or number is missing before `{after}`")),
            _ => Ok(word),
        }
    }

    fn name(&self, name: &str) -> Result<Value, String> {
        let local = self.function.and_then(|it| it.variables().iter().find(|it| it.name == name));
        if let Some(variable) = local {
            return Ok(variable.value(self.world, self.frame));
        }
        let this = self.function.and_then(|it| it.variables().iter().find(|it| it.name == "this"));
        if let Some(this) = this
            && let Ok(object) = this.value(self.world, self.frame).target(self.world)
            && let Ok(member) = object.member(self.world, name)
        {
            return Ok(member);
        }
        let pc = self.world.frame(self.frame).map_or(0, |frame| frame.pc);
        if let Some(variable) = Variable::named(self.world, pc, name) {
            return Ok(variable.value(self.world, self.frame));
        }
        if let Some(value) = self.enumerator(name) {
            return Ok(value);
        }
        if TYPES.contains(&name) {
            return Err(format!(
                "`{name}` is a type: casts and sizeof are not served here; gdb has them (`gretel gdb`)"
            ));
        }
        Err(format!("there is no variable `{name}` here, and no global one in files with debug information"))
    }

    /// A value of an enumeration that a variable in scope has.
    fn enumerator(&self, name: &str) -> Option<Value> {
        let variables = self.function.map(Function::variables).unwrap_or_default();
        variables.iter().find_map(|variable| {
            let value = variable.value(self.world, self.frame).referred(self.world).ok()?;
            let Shape::Enumeration { names, .. } = value.ty.shape() else { return None };
            names.iter().find(|(it, _)| it == name).map(|(_, number)| Value::number(*number, true))
        })
    }

    fn register(&self, name: &str) -> Result<Value, String> {
        let frame = self.world.frame(self.frame).ok_or("there is no such frame")?;
        let number = match name {
            "pc" | "rip" => Some(frame.rip),
            "sp" => frame.general[7],
            "fs_base" => Some(frame.fs_base),
            name => match dwarf_number(name) {
                Some(number) => frame.general[number],
                None => return vector(&frame, name),
            },
        };
        let number =
            number.ok_or_else(|| format!("${name} is not known in this frame: calls do not keep it"))?;
        Ok(Value::number(i128::from(number), false))
    }
}

/// Hardware numbers of DWARF registers 0 to 7: rax rdx rcx rbx rsi rdi rbp rsp.
const HARDWARE: [usize; 8] = [0, 2, 1, 3, 6, 7, 5, 4];

/// The name of a register by its DWARF number (System V ABI for x86-64, figure 3.36).
pub(crate) fn register_name(number: u16) -> Option<String> {
    let n = usize::from(number);
    let general = Gpr::NAMES.get(HARDWARE.get(n).copied().unwrap_or(n));
    // 16 is the return address.
    let vector = || n.checked_sub(17).filter(|n| *n < 16).map(|n| format!("xmm{n}"));
    general.map(|name| (*name).to_owned()).or_else(vector)
}

/// The DWARF number of a general register.
fn dwarf_number(name: &str) -> Option<usize> {
    let hardware = Gpr::NAMES.iter().position(|it| *it == name)?;
    Some(HARDWARE.iter().position(|it| *it == hardware).unwrap_or(hardware))
}

fn vector(frame: &super::Frame, name: &str) -> Result<Value, String> {
    let n = name.strip_prefix("xmm").and_then(|digits| digits.parse::<usize>().ok()).filter(|n| *n < 16);
    let n = n.ok_or_else(|| {
        format!("there is no register ${name}: there are $rax to $r15, $rip and $xmm0 to $xmm15")
    })?;
    let known =
        frame.vector.ok_or_else(|| format!("${name} is not known in this frame: calls do not keep it"))?;
    let bytes = known[n].to_le_bytes().iter().copied().map(Some).collect();
    Ok(Value::new(Type::Wide, Place::Bytes(bytes)))
}

fn truth(is: bool) -> Value {
    Value::number(i128::from(is), true)
}
