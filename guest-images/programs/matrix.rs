//! Numbers in bulk, compiled for x86-64-v3: an LU decomposition, a Fourier transform, a sieve, a game of life, sums of floats.

const N: usize = 24;

fn determinant(mut m: [[f64; N]; N]) -> f64 {
    let mut product = 1.0;
    for column in 0..N {
        let pivot = (column..N).max_by(|a, b| m[*a][column].abs().total_cmp(&m[*b][column].abs())).expect("a row");
        if pivot != column {
            m.swap(pivot, column);
            product = -product;
        }
        product *= m[column][column];
        let row = m[column];
        for below in &mut m[column + 1..] {
            let factor = below[column] / row[column];
            below.iter_mut().zip(row).for_each(|(to, from)| *to -= factor * from);
        }
    }
    product
}

fn transform(values: &mut [(f32, f32)], sign: f32) {
    let n = values.len();
    if n == 1 {
        return;
    }
    let mut even: Vec<_> = values.iter().copied().step_by(2).collect();
    let mut odd: Vec<_> = values.iter().copied().skip(1).step_by(2).collect();
    transform(&mut even, sign);
    transform(&mut odd, sign);
    // The roots of unity by repeated squares, so that no library of functions is asked.
    let mut root = (-1.0_f32, 0.0_f32);
    for _ in 1..n.trailing_zeros() {
        let half = ((1.0 + root.0) / 2.0).sqrt();
        root = (half, sign * ((1.0 - root.0) / 2.0).sqrt());
    }
    let mut w = (1.0, 0.0);
    for k in 0..n / 2 {
        let t = (w.0 * odd[k].0 - w.1 * odd[k].1, w.0 * odd[k].1 + w.1 * odd[k].0);
        values[k] = (even[k].0 + t.0, even[k].1 + t.1);
        values[k + n / 2] = (even[k].0 - t.0, even[k].1 - t.1);
        w = (w.0 * root.0 - w.1 * root.1, w.0 * root.1 + w.1 * root.0);
    }
}

fn life(generations: usize) -> (usize, u64) {
    let mut rows = [0_u64; 64];
    rows[30] = 0b0000_0010 << 20;
    rows[31] = 0b0000_1000 << 20;
    rows[32] = 0b0110_0111 << 20;
    for _ in 0..generations {
        let old = rows;
        for (y, row) in rows.iter_mut().enumerate() {
            let near = [old[(y + 63) % 64], old[y], old[(y + 1) % 64]];
            let (mut ones, mut twos, mut fours) = (0, 0, 0);
            for (k, line) in near.into_iter().enumerate() {
                for shifted in [line.rotate_left(1), if k == 1 { 0 } else { line }, line.rotate_right(1)] {
                    let carry = ones & shifted;
                    ones ^= shifted;
                    fours |= twos & carry;
                    twos ^= carry;
                }
            }
            *row = twos & !fours & (ones | old[y]);
        }
    }
    let hash = rows.iter().fold(7, |sum: u64, row| sum.rotate_left(9) ^ row.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (rows.iter().map(|row| row.count_ones() as usize).sum(), hash)
}

fn main() {
    let mut m = [[0.0; N]; N];
    for (r, row) in m.iter_mut().enumerate() {
        for (c, v) in row.iter_mut().enumerate() {
            *v = ((r * 31 + c * 17) % 23) as f64 - 9.5 + if r == c { 20.0 } else { 0.0 };
        }
    }
    let d = determinant(m);
    println!("determinant {d:e} {:#x}", d.to_bits());

    let mut signal: Vec<_> = (0..256).map(|n| ((n * n % 37) as f32 - 18.0, 0.0)).collect();
    transform(&mut signal, -1.0);
    let power: f32 = signal.iter().map(|(re, im)| re * re + im * im).sum();
    println!("power {power} {:#x}", power.to_bits());
    transform(&mut signal, 1.0);
    println!("back {:?}", signal.iter().take(6).map(|(re, _)| (re / 256.0).round()).collect::<Vec<_>>());

    let mut sieve = vec![true; 20_000];
    for n in 2..142 {
        if sieve[n] {
            sieve[n * n..].iter_mut().step_by(n).for_each(|composite| *composite = false);
        }
    }
    println!("{} primes", sieve.iter().skip(2).filter(|prime| **prime).count());
    println!("life {:?}", life(200));
    let floats: Vec<f32> = (1..5000).map(|n| 1.0 / n as f32).collect();
    let (up, down): (f32, f32) = (floats.iter().sum(), floats.iter().rev().sum());
    println!("{up} {down} {}", floats.iter().map(|v| f64::from(*v)).sum::<f64>());
}
