// Floating point: what printf and scanf make of it in three precisions, libm, rounding modes, exceptions, special values.
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void show(const char *what, double v) { printf("%-12s %a %.17g %e %g\n", what, v, v, v, v); }

int main(void) {
    static const double values[] = {
        0.0, -0.0, 1.0, -1.5, 0.1, 1.0 / 3, 3.141592653589793, 1e22, 1e23, 5e-324, DBL_MIN, DBL_MAX, 123456789.125, 2.5, 3.5,
        INFINITY, -INFINITY,
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        volatile double v = values[i];
        show("value", v);
        printf("  float %a %.9g  long double %La %.21Lg\n", (double)(float)v, (double)(float)v, (long double)v, (long double)v);
        printf("  %.0f %10.3f %+.2e %#.5g %08.2f\n", fabs(v) < 1e10 ? v : 1, fabs(v) < 1e10 ? v : 1, v, v, fabs(v) < 1e3 ? v : 2);
    }

    static const char *const texts[] = {
        "1e-400", "0x1.8p-1074", "4.9406564584124654e-324", "1.7976931348623159e308", "9007199254740993", "0.1e1x", "nan", "-inf",
        "123456789012345678901234567890", "0x1.fffffffffffff8p0",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *end;
        double d = strtod(texts[i], &end);
        printf("%s: %a, float %a, long double %La, rest '%s'\n", texts[i], d, (double)strtof(texts[i], NULL), strtold(texts[i], NULL), end);
    }

    for (double x = -3.7; x < 4; x += 0.61) {
        printf("x = %.3f\n", x);
        show("sqrt", sqrt(fabs(x))), show("cbrt", cbrt(x)), show("fmod", fmod(x, 0.7)), show("remainder", remainder(x, 0.7));
        show("floor", floor(x)), show("rint", rint(x)), show("round", round(x)), show("trunc", trunc(x));
        show("sin", sin(x)), show("atan2", atan2(x, 2)), show("exp", exp(x)), show("log", log(fabs(x)));
        show("pow", pow(fabs(x), 2.3)), show("tanh", tanh(x)), show("lgamma", lgamma(fabs(x))), show("erf", erf(x));
        show("hypot", hypot(x, 1)), show("scalbn", scalbn(x, -1060)), show("nextafter", nextafter(x, 9));
        printf("  long: %La %La %La %La\n", sinl(x), expl(x), logl(fabsl(x)), powl(fabsl(x), 1.25L));
        int exponent;
        double fraction = frexp(x, &exponent), whole, part = modf(x, &whole);
        printf("  frexp %a %d modf %a %a lrint %ld llround %lld ilogb %d\n", fraction, exponent, part, whole, lrint(x), llround(x), ilogb(x));
    }

    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    for (int m = 0; m < 4; m++) {
        fesetround(modes[m]);
        volatile double one = 1, ten = 10, half = 2.5;
        volatile float f = 1.0f;
        volatile long double l = 1.0L;
        printf("mode %d: %a %a %La %.1f %ld %.3f\n", m, one / ten, (double)(f / 3), l / 3, half, lrint(half), 0.0005);
    }
    fesetround(FE_TONEAREST);
    feclearexcept(FE_ALL_EXCEPT);
    volatile double zero = 0, big = DBL_MAX, small = DBL_MIN, sink;
    sink = 1 / zero, printf("1/0: %f, flags %#x\n", sink, fetestexcept(FE_ALL_EXCEPT)), feclearexcept(FE_ALL_EXCEPT);
    sink = big * big, printf("big: %f, flags %#x\n", sink, fetestexcept(FE_ALL_EXCEPT)), feclearexcept(FE_ALL_EXCEPT);
    sink = small * small, printf("small: %a, flags %#x\n", sink, fetestexcept(FE_ALL_EXCEPT)), feclearexcept(FE_ALL_EXCEPT);
    sink = zero / zero, printf("0/0: %d, flags %#x\n", isnan(sink), fetestexcept(FE_ALL_EXCEPT));

    double sum = 0, product = 1;
    for (int i = 1; i < 3000; i++) sum += 1.0 / i / i, product *= 1 + 1.0 / i / i;
    show("sum", sum), show("product", product);
    return 0;
}
