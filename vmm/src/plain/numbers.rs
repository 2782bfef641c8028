//! Numbers and byte strings: unsigned LEB128, zigzag for signed numbers, lengths before bytes.

/// Appends an unsigned number, seven bits a byte, the lowest first; the top bit says that more follow.
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    let (mut bytes, mut length) = ([0; 10], 0);
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        let more = value != 0;
        bytes[length] = low & 0x7f | u8::from(more) << 7;
        length += 1;
        if !more {
            return out.extend_from_slice(&bytes[..length]);
        }
    }
}

/// Appends a signed number in zigzag order: 0, -1, 1, -2, …
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, (value << 1 ^ value >> 63).cast_unsigned());
}

/// Appends a digest: eight bytes, since it has no small values.
pub fn put_digest(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_le_bytes());
}

/// Appends a byte string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend(bytes);
}

/// What is left to decode. Every method gives `None` when it does not find what it is to read.
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// An unsigned number.
    pub fn u64(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A signed number.
    pub fn i64(&mut self) -> Option<i64> {
        let value = self.u64()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A signed number of 32 bits.
    pub fn i32(&mut self) -> Option<i32> {
        self.i64()?.try_into().ok()
    }

    /// A digest.
    pub fn digest(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    /// A byte string.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u64()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A byte string that is UTF-8.
    pub fn string(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// A counted list. The count is not trusted for an allocation.
    pub fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.u64()?).map(|_| one(self)).collect()
    }
}
