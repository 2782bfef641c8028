//! The packets themselves: what a debugger may send that is none of gdb's.

use super::recorded;
use crate::{Place, finished};
use std::io::{Read, Write};
use std::process::Stdio;

fn framed(body: &[u8]) -> Vec<u8> {
    let sum = body.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    [b"$", body, format!("#{sum:02x}").as_bytes()].concat()
}

/// What comes up to a packet's checksum: nothing is sent before the answer is there, as that would be a Ctrl-C to a program that runs.
fn answer(output: &mut impl Read) -> String {
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.rsplit('#').next().is_some_and(|sum| text.contains('#') && sum.len() == 2) {
        output.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} behind {text}"));
        text.push(char::from(byte[0]));
    }
    text
}

#[test]
fn nothing_that_is_sent_is_too_bad() {
    let place = Place::new();
    if recorded(&place, "soft").is_none() {
        return;
    }
    let mut served = place
        .command(env!("CARGO_BIN_EXE_gretel"), &["gdb", "rec", "--stdio", "--engine", "soft"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gretel runs");
    let mut input = served.stdin.take().expect("its standard input");
    let odd: &[&[u8]] = &[
        b"qC",
        b"",
        b"Hg7fffffff",
        b"Hgp0.0",
        b"p4c",
        b"pffffffffffffffff",
        b"mffffffffffffffff,10",
        b"m0,ffffffffffffffff",
        b"g",
        b"qXfer:auxv:read::ffffffffffffffff,ffffffffffffffff",
        b"qXfer:features:read:no.xml:0,10",
        b"vFile:open:2f6574632f706173737764,0,0",
        b"vFile:open:2f70726f632f312f6d617073,0,0",
        b"vFile:pread:0,10,0",
        b"vFile:pread:9,10,0",
        b"vFile:close:0",
        b"vFile:unlink:2f",
        b"Z2,ffffffffffffff00,ffffffffffffffff",
        b"Z4,fffffffffffffff0,100",
        b"Z0,0,1;X3,21",
        b"z4,1,1",
        b"vCont;x",
        b"vCont;s:p7fffffff.7fffffff",
        b"vAttach;7fffffff",
        b"QPassSignals:zz",
        b"X10,2:\xff\xfe",
        b"qThreadExtraInfo,7fffffff",
        b"qRcmd,zz",
        b"qMemoryRegionInfo:ffffffffffffffff",
        b"bs",
        b"bc",
        b"vCont;c",
    ];
    let mut output = served.stdout.take().expect("its standard output");
    let mut out = String::new();
    input.write_all(b"-+\x03$nothing#zz").expect("it listens");
    for body in odd {
        input.write_all(&framed(body)).expect("it listens");
        out += &answer(&mut output);
    }
    input.write_all(&framed(b"k")).expect("it listens");
    drop(input);
    let ran = finished(&served.wait_with_output().expect("it ends"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    for answer in ["$QC", "$E0e#", "$F-1,2#", "$F0#", "$F-1,9#", "$E1e#", "$E16#", "replaylog:begin;", "$T0b"]
    {
        assert!(out.contains(answer), "`{answer}` is missing in {out}");
    }
}
