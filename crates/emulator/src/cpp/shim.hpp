// What generated C++ for HIP or CUDA needs to run on the processor: one fiber for each lane of a wave, which
// meet where they exchange values.
//
// Of the lanes that wait, those at the first place in the code go on together, as on a GPU. A lane that takes
// a value from one that is not there gets POISON, a NaN.
//
// The compiler's own functions stand in for the larger headers, which take longer to read than all else.
#pragma once
#undef _FORTIFY_SOURCE
#include <setjmp.h>
#include <stddef.h>
#include <ucontext.h>

extern "C" void *malloc(size_t);

#define __device__
#define __global__
#define __launch_bounds__(units)
#define __grid_constant__

namespace shim {

struct Position { unsigned x, y, z; };

struct Lane {
    Position thread;
    // Where it waits, what it gives, whose value it wants, and what it got.
    int site;
    unsigned given, from, taken;
    bool waits;
    bool entered;
    ucontext_t entry;
    jmp_buf at;
};

static const unsigned POISON = 0x7FBADBAD;
static Lane lanes[64];
static unsigned current;
static Position cube, cubes;
static jmp_buf scheduler;
static void (*job)();

inline void wait() {
    if (!_setjmp(lanes[current].at)) _longjmp(scheduler, 1);
}

inline void live() {
    for (;;) {
        job();
        lanes[current].waits = false;
        wait();
    }
}

inline void resume(unsigned lane) {
    current = lane;
    if (_setjmp(scheduler)) return;
    if (lanes[lane].entered) _longjmp(lanes[lane].at, 1);
    lanes[lane].entered = true;
    getcontext(&lanes[lane].entry);
    lanes[lane].entry.uc_stack.ss_size = 1 << 16;
    lanes[lane].entry.uc_stack.ss_sp = malloc(1 << 16);
    makecontext(&lanes[lane].entry, live, 0);
    setcontext(&lanes[lane].entry);
}

// Runs the lanes of a wave from where they wait to where the next exchange is, until all have ended.
inline void run_wave(unsigned count) {
    for (;;) {
        int site = -1;
        for (unsigned i = 0; i < count; i++)
            if (lanes[i].waits && (site < 0 || lanes[i].site < site)) site = lanes[i].site;
        if (site < 0) return;
        bool here[64];
        for (unsigned i = 0; i < count; i++) here[i] = lanes[i].waits && lanes[i].site == site;
        for (unsigned i = 0; i < count; i++) {
            unsigned from = lanes[i].from;
            lanes[i].taken = from < count && here[from] ? lanes[from].given : POISON;
        }
        for (unsigned i = 0; i < count; i++)
            if (here[i]) resume(i);
    }
}

template <class T> T exchange(T value, unsigned from, int site) {
    static_assert(sizeof(T) == 4, "lanes exchange words");
    Lane &lane = lanes[current];
    __builtin_memcpy(&lane.given, &value, 4);
    lane.from = from;
    lane.site = site;
    wait();
    __builtin_memcpy(&value, &lane.taken, 4);
    return value;
}

template <class T> struct Argument {
    static T of(void *value) { return *static_cast<T *>(value); }
};
template <class T> struct Argument<T *> {
    static T *of(void *value) { return static_cast<T *>(value); }
};

template <size_t... I> struct Indices {};
template <size_t N, size_t... I> struct UpTo : UpTo<N - 1, N - 1, I...> {};
template <size_t... I> struct UpTo<0, I...> { typedef Indices<I...> All; };

template <class... A, size_t... I>
void call(void (*kernel)(A...), void *const *arguments, Indices<I...>) {
    kernel(Argument<A>::of(arguments[I])...);
}

// The kernel and its arguments, as a function without any.
template <class... A> struct Bound {
    static void (*kernel)(A...);
    static void *const *arguments;
    static void run() { call(kernel, arguments, typename UpTo<sizeof...(A)>::All()); }
};
template <class... A> void (*Bound<A...>::kernel)(A...);
template <class... A> void *const *Bound<A...>::arguments;

template <class... A>
void launch(void (*kernel)(A...), void *const *arguments, unsigned count, unsigned x, unsigned y, unsigned width) {
    Bound<A...>::kernel = kernel;
    Bound<A...>::arguments = arguments;
    job = Bound<A...>::run;
    cubes = {count, 1, 1};
    for (unsigned index = 0; index < count; index++)
        for (unsigned first = 0; first < x * y; first += width) {
            unsigned here = x * y - first < width ? x * y - first : width;
            cube = {index, 0, 0};
            for (unsigned i = 0; i < here; i++) {
                lanes[i].thread = {(first + i) % x, (first + i) / x, 0};
                lanes[i].site = 0;
                lanes[i].waits = true;
            }
            run_wave(here);
        }
}

// A number of 16 bits with so many in its mantissa, rounded to nearest even; in f64 every step is exact.
inline unsigned short narrow(float x, int mantissa, int lowest, int infinity) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    unsigned short sign = bits >> 16 & 0x8000;
    if (x != x) return sign | infinity | 1 << (mantissa - 1);
    if (x == 0) return sign;
    if (__builtin_isinf(x)) return sign | infinity;
    int exponent = __builtin_ilogb(x) > lowest ? __builtin_ilogb(x) : lowest;
    int steps = (int)__builtin_nearbyint(__builtin_ldexp(__builtin_fabs((double)x), mantissa - exponent));
    // A mantissa that rounds up to the next power of two carries into the exponent.
    int all = steps < 1 << mantissa ? steps : ((exponent - lowest) << mantissa) + steps;
    return sign | (all < infinity ? all : infinity);
}

inline float widen(unsigned short bits, int mantissa, int lowest, int infinity) {
    int magnitude = bits & 0x7FFF, exponent = magnitude >> mantissa;
    double value = exponent ? __builtin_ldexp((magnitude & ((1 << mantissa) - 1)) | 1 << mantissa, exponent - 1 + lowest - mantissa)
                            : __builtin_ldexp(magnitude, lowest - mantissa);
    if (magnitude > infinity) value = __builtin_nan("");
    if (magnitude == infinity) value = __builtin_inf();
    return bits & 0x8000 ? -value : value;
}

template <int MANTISSA, int LOWEST, int INFINITE> struct Half {
    unsigned short bits;
    Half() = default;
    explicit Half(float x) : bits(narrow(x, MANTISSA, LOWEST, INFINITE)) {}
    explicit operator float() const { return widen(bits, MANTISSA, LOWEST, INFINITE); }
};

} // namespace shim

typedef shim::Half<7, -126, 0x7F80> __hip_bfloat16, __nv_bfloat16;
typedef shim::Half<10, -14, 0x7C00> __half;

#define threadIdx (shim::lanes[shim::current].thread)
#define blockIdx shim::cube
#define gridDim shim::cubes

// The generated code names these itself, as other types than the system's.
#define int64_t device_int64_t
#define uint64_t device_uint64_t

#define __activemask() 0xFFFFFFFFu
#define __shfl_xor(value, mask) shim::exchange(value, shim::current ^ (mask), __LINE__)
#define __shfl(value, lane) shim::exchange(value, lane, __LINE__)
#define __shfl_xor_sync(active, value, mask) __shfl_xor(value, mask)
#define __shfl_sync(active, value, lane) __shfl(value, lane)

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrt(float a) { return __builtin_sqrtf(a); }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
