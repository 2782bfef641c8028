//! VMCOREINFO: what a kernel tells crash dump tools of itself, a `KEY=value` a line (Linux, admin-guide/kdump/vmcoreinfo.rst).
//!
//! Example: `SYMBOL(prb)=ffffffff82a622c0` (an address, hexadecimal), `OFFSET(printk_info.ts_nsec)=8`, `NUMBER(phys_base)=0`.

use std::collections::BTreeMap;

/// Its lines.
#[derive(Clone, Debug, Default)]
pub struct Info<'t>(BTreeMap<&'t str, &'t str>);

impl<'t> Info<'t> {
    /// Reads the text; lines that are none are left out.
    #[must_use]
    pub fn of(text: &'t str) -> Info<'t> {
        Info(text.lines().filter_map(|line| line.split_once('=')).collect())
    }

    /// The value of a key.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&'t str> {
        self.0.get(key).copied()
    }

    /// `SYMBOL(name)`: its address.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.text(&format!("SYMBOL({name})"))?, 16).ok()
    }

    /// `NUMBER(name)`, as two's complement.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let text = self.text(&format!("NUMBER({name})"))?;
        text.parse().ok().or_else(|| text.parse().ok().map(i64::cast_unsigned))
    }

    /// `OFFSET(field)`, in bytes.
    ///
    /// # Errors
    /// That the kernel does not tell it.
    pub fn offset(&self, field: &str) -> Result<u64, String> {
        self.decimal("OFFSET", field)
    }

    /// `SIZE(type)`, in bytes.
    ///
    /// # Errors
    /// As [`Info::offset`].
    pub fn size(&self, name: &str) -> Result<u64, String> {
        self.decimal("SIZE", name)
    }

    fn decimal(&self, what: &str, name: &str) -> Result<u64, String> {
        let key = format!("{what}({name})");
        let value = self.text(&key).and_then(|text| text.parse().ok());
        value.ok_or_else(|| format!("VMCOREINFO has no {key}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_values_and_nothing_else_has() {
        let info = Info::of(
            "OSRELEASE=6.1\nSYMBOL(prb)=ff01\nNUMBER(phys_base)=-4096\nOFFSET(a.b)=12\njunk\nSIZE(x)=?\n",
        );
        assert_eq!((info.text("OSRELEASE"), info.symbol("prb")), (Some("6.1"), Some(0xff01)));
        assert_eq!((info.number("phys_base"), info.offset("a.b")), (Some(0_u64.wrapping_sub(4096)), Ok(12)));
        assert_eq!(info.size("x"), Err("VMCOREINFO has no SIZE(x)".to_owned()));
    }
}
