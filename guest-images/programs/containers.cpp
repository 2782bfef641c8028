// The C++ library: containers, algorithms, streams, strings, exceptions through several frames, virtual calls, an uncaught one.
#include <algorithm>
#include <deque>
#include <functional>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    double area() const override { return side * side; }
};
struct Circle : Shape {
    double radius;
    explicit Circle(double r) : radius(r) {}
    double area() const override { return 3.14159265358979 * radius * radius; }
};

struct Noisy {
    const char *name;
    ~Noisy() { std::cout << "~" << name << ' '; }
};

static int deep(int n) {
    Noisy noisy{"deep"};
    if (n == 0) throw std::out_of_range("the bottom");
    return deep(n - 1) + 1;
}

static void dijkstra() {
    constexpr int n = 60;
    std::vector<std::vector<std::pair<int, int>>> edges(n);
    for (int a = 0; a < n; a++)
        for (int k = 1; k < 6; k++) edges[a].emplace_back((a * 7 + k * k * 3) % n, (a * k) % 11 + 1);
    std::vector<int> distance(n, 1 << 30);
    std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> open;
    open.emplace(distance[0] = 0, 0);
    while (!open.empty()) {
        const auto [far, at] = open.top();
        open.pop();
        if (far > distance[at]) continue;
        for (const auto &[to, cost] : edges[at])
            if (far + cost < distance[to]) open.emplace(distance[to] = far + cost, to);
    }
    std::cout << "distances " << std::accumulate(distance.begin(), distance.end(), 0L) << '\n';
}

int main() {
    std::ios::sync_with_stdio(false);
    std::map<std::string, int> words;
    std::unordered_map<std::string, std::size_t> lengths;
    for (std::string word; std::cin >> word;) words[word]++, lengths[word] = word.size();
    std::size_t all = 0;
    for (const auto &[word, length] : lengths) all += length * static_cast<std::size_t>(words[word]);
    for (const auto &[word, count] : words) std::cout << word << '=' << count << ' ';
    std::cout << '\n' << all << " letters\n";

    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 1; i < 6; i++) {
        shapes.push_back(std::make_unique<Square>(i * 0.5));
        shapes.push_back(std::make_unique<Circle>(i * 0.25));
    }
    std::sort(shapes.begin(), shapes.end(), [](const auto &a, const auto &b) { return a->area() < b->area(); });
    std::cout << std::fixed << std::setprecision(4);
    for (const auto &shape : shapes) std::cout << std::setw(9) << shape->area();
    std::cout << '\n' << std::scientific << 12345.678 << std::hexfloat << ' ' << 0.1 << std::defaultfloat << ' ' << 1e100 << std::hex << ' ' << 255 << std::dec << '\n';

    std::deque<int> deque;
    std::list<int> list;
    std::set<int, std::greater<>> set;
    for (int i = 0; i < 200; i++) {
        (i % 3 ? deque.push_front(i * 37 % 101) : deque.push_back(i));
        list.push_back(i * 53 % 97), set.insert(i * i % 83);
    }
    list.sort(), list.unique();
    std::nth_element(deque.begin(), deque.begin() + 100, deque.end());
    std::cout << deque[100] << ' ' << list.size() << ' ' << *set.begin() << ' ' << set.size() << '\n';
    dijkstra();

    std::ostringstream out;
    std::istringstream in("12 0x1f 3.5e2 text");
    int a, b;
    double c;
    std::string rest;
    in >> a >> std::hex >> b >> c >> rest;
    out << a << ',' << b << ',' << c << ',' << rest;
    std::cout << out.str() << '\n';
    try {
        deep(4);
    } catch (const std::exception &error) {
        std::cout << "caught " << error.what() << '\n';
    }
    try {
        try {
            (void)std::stoi("not a number");
        } catch (const std::invalid_argument &) {
            std::throw_with_nested(std::runtime_error("outer"));
        }
    } catch (const std::runtime_error &error) {
        std::cout << error.what() << std::endl;
    }
    throw std::logic_error("nobody catches this");
}
