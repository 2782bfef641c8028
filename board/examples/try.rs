use board::*;
use std::io::Write;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let setup = Setup {
        kernel: std::fs::read(&a[1]).unwrap(),
        initrd: std::fs::read(&a[2]).ok(),
        command_line: a[3].clone(),
        memory: 512 << 20,
        start: 1_700_000_000,
    };
    let t = std::time::Instant::now();
    let mut m =
        if std::env::var("INT").is_ok() { Machine::tuned(&setup, None) } else { Machine::boot(&setup) }
            .unwrap();
    let mut typed = std::env::args().nth(4).unwrap_or_default().into_bytes();
    let mut bound = 0;
    loop {
        bound = bound.max(m.moment().retired) + 1_000_000;
        let p = m.run(bound);
        std::io::stdout().write_all(&m.take_printed()).unwrap();
        let n = m.room().min(typed.len());
        if n > 0 {
            let rest = typed.split_off(n);
            m.type_bytes(&typed);
            typed = rest;
            continue;
        }
        match p {
            Pause::There => {}
            Pause::Idle(Some(t)) => m.wait_until(t),
            p => {
                println!("{p:?}");
                break;
            }
        }
    }
    println!("{:?} {:?} {:?}", t.elapsed(), m.moment(), m.digests_of_all());
}
