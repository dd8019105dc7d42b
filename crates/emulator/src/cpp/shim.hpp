// What generated C++ for HIP or CUDA needs to run on the processor: one fiber for each lane of a cube. The lanes of a wave meet where
// they exchange values, those of a cube at barriers.
//
// Of the lanes of a wave that wait, those at the first place in the code go on together, as on a GPU. A lane that takes
// a value from one that is not there gets POISON, a NaN. Waves run one after the other, each to the next barrier: what one needs of
// another's without a barrier between, it does not see.
//
// The compiler's own functions stand in for the larger headers, which take longer to read than all else.
#pragma once
#undef _FORTIFY_SOURCE
#include <setjmp.h>
#include <stddef.h>
#include <ucontext.h>

extern "C" void *malloc(size_t);
extern "C" void *aligned_alloc(size_t, size_t);
extern "C" void free(void *);

#define __device__
#define __global__
#define __launch_bounds__(units)
#define __grid_constant__
#define __align__(bytes)

namespace shim {

struct Position { unsigned x, y, z; };

struct Lane {
    Position thread;
    // Where it waits, what it gives, whose value it wants, and what it got.
    int site;
    unsigned given, from, taken;
    bool waits;
    bool at_barrier;
    bool entered;
    ucontext_t entry;
    jmp_buf at;
};

static const unsigned POISON = 0x7FBADBAD;
// What a cube's memory holds before it is written: a NaN, and no index.
static const unsigned NOTHING = 0xFFFFFFFF;
static const unsigned MOST = 1024, STACK = 1 << 20;
static Lane lanes[MOST];
static unsigned current, width;
// The memory of a cube.
static char *shared;
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
    lanes[lane].entry.uc_stack.ss_size = STACK;
    lanes[lane].entry.uc_stack.ss_sp = malloc(STACK);
    makecontext(&lanes[lane].entry, live, 0);
    setcontext(&lanes[lane].entry);
}

// Runs the lanes of a wave from where they wait to where the next exchange is, until all have ended or are at a barrier.
inline void run_wave(unsigned first, unsigned end) {
    for (;;) {
        int site = -1;
        for (unsigned i = first; i < end; i++)
            if (lanes[i].waits && !lanes[i].at_barrier && (site < 0 || lanes[i].site < site)) site = lanes[i].site;
        if (site < 0) return;
        bool here[MOST];
        for (unsigned i = first; i < end; i++) here[i] = lanes[i].waits && !lanes[i].at_barrier && lanes[i].site == site;
        for (unsigned i = first; i < end; i++) {
            unsigned from = lanes[i].from;
            lanes[i].taken = from >= first && from < end && here[from] ? lanes[from].given : POISON;
        }
        for (unsigned i = first; i < end; i++)
            if (here[i]) resume(i);
    }
}

// Runs the waves of a cube from one barrier to the next. False where not all lanes are at the same one.
inline bool run_cube(unsigned units) {
    for (;;) {
        for (unsigned first = 0; first < units; first += width)
            run_wave(first, first + width < units ? first + width : units);
        bool ended = true;
        for (unsigned i = 0; i < units; i++) ended = ended && !lanes[i].waits;
        if (ended) return true;
        for (unsigned i = 0; i < units; i++)
            if (!lanes[i].waits || lanes[i].site != lanes[0].site) return false;
        for (unsigned i = 0; i < units; i++) lanes[i].at_barrier = false;
    }
}

inline void barrier(int site) {
    Lane &lane = lanes[current];
    lane.site = site;
    lane.from = current;
    lane.at_barrier = true;
    wait();
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

// Runs every cube, with so many bytes between guards as its memory. 1 where lanes do not meet at a barrier, 2 where a guard is
// overwritten.
template <class... A>
int launch(void (*kernel)(A...), void *const *arguments, unsigned count, unsigned x, unsigned y, unsigned lanes_of_wave, size_t bytes) {
    static const size_t GUARD = 1 << 14;
    Bound<A...>::kernel = kernel;
    Bound<A...>::arguments = arguments;
    job = Bound<A...>::run;
    width = lanes_of_wave;
    cubes = {count, 1, 1};
    size_t words = (bytes + 2 * GUARD) / 4;
    unsigned *memory = static_cast<unsigned *>(aligned_alloc(256, (4 * words + 255) / 256 * 256));
    int wrong = 0;
    for (unsigned index = 0; index < count && !wrong; index++) {
        for (size_t i = 0; i < words; i++) memory[i] = NOTHING;
        shared = reinterpret_cast<char *>(memory) + GUARD;
        cube = {index, 0, 0};
        for (unsigned i = 0; i < x * y; i++) {
            lanes[i].thread = {i % x, i / x, 0};
            lanes[i].site = 0;
            lanes[i].waits = true;
            lanes[i].at_barrier = false;
        }
        if (!run_cube(x * y)) wrong = 1;
        for (size_t i = 0; i < words; i++)
            if ((i < GUARD / 4 || i >= (GUARD + bytes) / 4) && memory[i] != NOTHING) wrong = 2;
    }
    free(memory);
    return wrong;
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
#define __shfl(value, lane) shim::exchange(value, shim::current / shim::width * shim::width + (lane), __LINE__)
#define __syncthreads() shim::barrier(__LINE__)
#define __shfl_xor_sync(active, value, mask) __shfl_xor(value, mask)
#define __shfl_sync(active, value, lane) __shfl(value, lane)

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrt(float a) { return __builtin_sqrtf(a); }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
