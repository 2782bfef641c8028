//! A recording of the kernel in guest-images, looked at from all sides.

use super::*;
use crate::checkpoints;
use crate::journal::{BEHAVIOUR, Header, Reader, Writer};
use crate::record::{Takes, Terminal, record};
use crate::{Extras, Setup};
use std::io;
use std::path::Path;
use std::time::Duration;
use vmm::engine::lookout::{Access, Watch};

const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-images/build/bare-kernel");

/// Types `hello` and a carriage return.
struct Typist(Vec<u8>);

impl Terminal for Typist {
    fn take(&mut self, most: usize) -> Vec<u8> {
        // One at a time, so that there are several records.
        self.0.drain(..most.min(1).min(self.0.len())).collect()
    }

    fn has_news(&mut self, _: Takes) -> bool {
        !self.0.is_empty()
    }

    fn random(&mut self, length: usize) -> io::Result<Vec<u8>> {
        Ok(vec![7; length])
    }

    fn wait(&mut self, _: Option<Duration>, _: Takes) -> bool {
        false
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn wants_end(&self) -> bool {
        false
    }

    fn show(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn setup() -> Setup {
    let kernel = std::fs::read(IMAGE).unwrap_or_else(|error| panic!("{IMAGE}: {error}: make guests"));
    Setup { kernel, command_line: "spin echo".to_owned(), memory: 16 << 20, ..Setup::default() }
}

struct Boots {
    list: Vec<(u64, u64)>,
    shelf: checkpoints::Shelf,
}

impl Starts for Boots {
    fn list(&self) -> &[(u64, u64)] {
        &self.list
    }

    fn machine(&self, start: usize) -> Result<Machine, String> {
        match start {
            0 => Machine::boot(&setup()).map_err(|error| error.to_string()),
            n => self.shelf.machine(n - 1, None).map_err(|error| error.to_string()),
        }
    }
}

/// Records, and opens that at an instruction.
fn travel(dir: &Path, at: Option<u64>) -> Travel {
    let (journal, checkpoints) = (dir.join("journal"), dir.join("checkpoints"));
    if !journal.exists() {
        let header = Header {
            gretel: "test".to_owned(),
            behaviour: BEHAVIOUR,
            kernel: 0,
            initrd: None,
            command_line: String::new(),
            memory: 16 << 20,
            start: 0,
            disk: None,
            extras: Extras::default(),
            from: None,
        };
        let mut machine = Machine::boot(&setup()).unwrap();
        let mut writer = Writer::create(&journal, &header).unwrap();
        let mut kept = checkpoints::Writer::create(&checkpoints).unwrap();
        let mut typist = Typist(b"hello\r".to_vec());
        record(&mut machine, &mut writer, &mut kept, &mut typist, 1 << 30).unwrap();
    }
    let mut reader = Reader::open(&journal).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.take().unwrap() {
        records.push(record);
    }
    let shelf = checkpoints::Shelf::open(&checkpoints).unwrap();
    let kept = (0..shelf.len()).map(|n| shelf.about(n).unwrap());
    let list = std::iter::once((0, 0)).chain(kept.map(|(at, records)| (at.retired, records))).collect();
    Travel::open(Box::new(Boots { list, shelf }), records, at).unwrap()
}

/// All that there is to compare of a moment.
fn look(travel: &Travel) -> (Position, u64, u64) {
    let digests = travel.machine().digests_of_all();
    (travel.position(), digests.state, digests.memory)
}

#[test]
fn every_way_to_a_moment_leads_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut travel = travel(dir.path(), Some(0));
    let end = {
        travel.forward(&Lookout::default(), &mut |_, _| true).unwrap();
        travel.position().retired
    };
    assert!(end > CHECK, "{end} instructions");
    assert!(matches!(travel.ended(), Some(End::Machine(crate::End::PowerOff))));
    let places: Vec<u64> = (0..12).map(|n| end * n / 12 + n).collect();
    let forward: Vec<_> = places
        .iter()
        .map(|at| {
            travel.seek(Position::at(*at)).unwrap();
            look(&travel)
        })
        .collect();
    for (at, expected) in places.iter().zip(&forward).rev() {
        travel.seek(Position::at(*at)).unwrap();
        assert_eq!(look(&travel), *expected, "at {at}");
    }
    // From a checkpoint on disk.
    let mut other = super::tests::travel(dir.path(), Some(end - 10));
    assert!(other.start > 0, "nothing was typed");
    other.seek(Position::at(places[11])).unwrap();
    assert_eq!(look(&other), forward[11]);
}

#[test]
fn steps_back_are_steps_forward_the_other_way() {
    let dir = tempfile::tempdir().unwrap();
    let mut travel = travel(dir.path(), Some(0));
    let nothing = Lookout::default();
    // The page fault is among these.
    for begin in [0, 2_400] {
        travel.seek(Position::at(begin)).unwrap();
        let mut seen = vec![look(&travel)];
        for _ in 0..60 {
            travel.step(&nothing, &mut |_, _| true).unwrap();
            seen.push(look(&travel));
        }
        assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
        seen.pop();
        for expected in seen.iter().rev() {
            assert_eq!(travel.step_back().unwrap(), Stop::There);
            assert_eq!(look(&travel), *expected);
        }
    }
    travel.seek_begin().unwrap();
    assert_eq!(travel.step_back().unwrap(), Stop::Begin);
}

#[test]
fn what_is_looked_for_is_seen_in_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    let mut travel = travel(dir.path(), Some(0));
    let mut stops = Vec::new();
    let ticks = symbol("ticks");
    let data = vec![Watch { range: ticks..ticks + 8, access: Access::Write }];
    let lookout = Lookout { at: Vec::new(), data };
    while let Stop::Seen(Seen::Data { before, accessed }) =
        travel.forward(&lookout, &mut |_, _| true).unwrap()
    {
        assert_eq!(accessed.address, ticks);
        let mut value = [0; 8];
        assert_eq!(travel.machine().read(ticks, &mut value), 8);
        stops.push((before, accessed.rip, u64::from_le_bytes(value)));
    }
    let values: Vec<u64> = stops.iter().map(|(_, _, value)| *value).collect();
    assert!(values.len() >= 200 && values.iter().copied().eq(1..=values.len() as u64), "{values:?}");
    for (before, rip, value) in stops.iter().rev().take(5) {
        assert!(matches!(travel.backward(&lookout, &mut |_, _| true).unwrap(), Stop::Seen(_)));
        assert_eq!((travel.position(), travel.machine().regs().rip), (*before, *rip));
        let mut was = [0; 8];
        assert_eq!(travel.machine().read(ticks, &mut was), 8);
        assert_eq!(u64::from_le_bytes(was), value - 1);
    }
    // The same by the instruction, to the first of all.
    let code = Lookout { at: vec![stops[0].1], data: Vec::new() };
    let mut hits = 0;
    while let Stop::Seen(Seen::Code(rip)) = travel.backward(&code, &mut |_, _| true).unwrap() {
        assert_eq!(rip, stops[0].1);
        hits += 1;
        if hits == 3 {
            travel.seek(Position { delivered: stops[1].0.delivered + 1, ..stops[1].0 }).unwrap();
        }
    }
    assert_eq!(hits, 5, "three, and the first two");
    assert_eq!(travel.position(), Position::default());
}

/// The address of a symbol of the kernel.
fn symbol(name: &str) -> u64 {
    use object::{Object, ObjectSymbol};
    let file = std::fs::read(IMAGE).unwrap();
    let file = object::File::parse(&*file).unwrap();
    file.symbols().find(|it| it.name() == Ok(name)).map(|it| it.address()).expect("a symbol")
}
